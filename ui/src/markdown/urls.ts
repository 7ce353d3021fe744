/** Which addresses that a model or a file names may become a link or a picture. All others stay text. */

const PICTURE_DATA = /^data:image\/(?:png|jpeg|gif|webp);base64,[a-z0-9+/]+={0,2}$/i;
/** Files of the notebook server, and nothing else of this origin: a picture must not be able to log a person out. */
const PICTURE_FILE = /^(?:\/[^?#]*)?\/files\/[^?#]+\.(?:png|jpe?g|gif|webp)$/i;
const LINK_SCHEMES = new Set(["http:", "https:", "mailto:"]);
const MAX_DATA = 4 << 20;

/** Absolute, with a scheme that only opens something; a person sees where it leads. */
export function isLink(address: string): boolean {
  if (!/^(?:https?:\/\/|mailto:)/i.test(address)) return false;
  try {
    const url = new URL(address);
    return LINK_SCHEMES.has(url.protocol);
  } catch {
    return false;
  }
}

/** Bytes in the address itself, or a picture among the files of this server. */
export function isPicture(address: string, page = location.href): boolean {
  if (PICTURE_DATA.test(address)) return address.length <= MAX_DATA;
  try {
    const url = new URL(address, page);
    const here = new URL(page);
    if (!/^https?:$/.test(here.protocol) || url.origin !== here.origin || url.search || url.username) return false;
    return PICTURE_FILE.test(url.pathname);
  } catch {
    return false;
  }
}
