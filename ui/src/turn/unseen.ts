/** Characters that are not seen, and those that turn the order of others around: what is shown with them is not what is
 * there. */

// Zero width, soft hyphen, marks of direction, and all below a space but tabs and newlines.
export const UNSEEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

export const hides = (text: string): boolean => text.search(UNSEEN) >= 0;
export const without = (text: string): string => text.replace(UNSEEN, "");
