/** Which URLs in the text of a model or a file may become a link or an image. All others stay text. */

const PICTURE_DATA = /^data:image\/(?:png|jpeg|gif|webp);base64,[a-z0-9+/]+={0,2}$/i;
/** Paths of images that may be shown. Only files of the notebook server, and no other URL of this origin: loading an
 * image must not be able to log the user out. */
const PICTURE_FILE = /^(?:\/[^?#]*)?\/files\/[^?#]+\.(?:png|jpe?g|gif|webp)$/i;
const LINK_SCHEMES = new Set(["http:", "https:", "mailto:"]);
const MAX_DATA = 4 << 20;

/** Whether a URL may become a link: an absolute URL with the scheme http, https or mailto. */
export function isLink(address: string): boolean {
  if (!/^(?:https?:\/\/|mailto:)/i.test(address)) return false;
  try {
    const url = new URL(address);
    return LINK_SCHEMES.has(url.protocol);
  } catch {
    return false;
  }
}

/** Whether a URL may be shown as an image: a data URL, or an image among the files of this server. */
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
