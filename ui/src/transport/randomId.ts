/** A name that nothing else has. `crypto.randomUUID` would be shorter, and is absent in pages without TLS. */
export const randomId = (): string =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
