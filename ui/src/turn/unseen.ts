/** Characters that are not seen, and those that turn the order of others around: what is shown with them is not what is
 * there. */

// Zero width, soft hyphen, fillers, tags, marks of direction and of annotation, the empty cell of Braille, and all below
// a space but tabs and newlines. Selectors of a variant belong to what is seen: U+FE0F makes a sign a picture.
export const UNSEEN =
  /(?![\ufe00-\ufe0f])[\p{Default_Ignorable_Code_Point}\u0000-\u0008\u000b-\u001f\u007f-\u009f\u2028-\u202e\u2800\ufff9-\ufffb]/gu;

export const hides = (text: string): boolean => text.search(UNSEEN) >= 0;
export const without = (text: string): string => text.replace(UNSEEN, "");
