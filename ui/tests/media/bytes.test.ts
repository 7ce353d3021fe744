import { describe, expect, test } from "vitest";
import { acquireMedium } from "../../src/media/bytes";
import { fileName, isAnimated, lookOf } from "../../src/media/mediaTypes";
import type { Transport } from "../../src/transport/transport";

const HASH = "a".repeat(64);

/** Counts what is asked for; the rest of a transport is not used here. */
function server(answer: () => Promise<Blob>): { transport: Transport; asked: string[] } {
  const asked: string[] = [];
  const transport = {
    bytes(path: string) {
      asked.push(path);
      return answer();
    },
  };
  return { transport: transport as unknown as Transport, asked };
}

describe("the bytes of media", () => {
  test("are fetched once however often they are shown, also after nobody showed them for a while", async () => {
    const { transport, asked } = server(() => Promise.resolve(new Blob(["x"])));
    const medium = { mime: "image/png", hash: HASH };
    const first = acquireMedium(transport, "s/1", medium);
    const second = acquireMedium(transport, "s/1", medium);
    expect(await second.blob).toBe(await first.blob);
    first.end();
    second.end();
    await acquireMedium(transport, "s/1", medium).blob;
    expect(asked).toEqual([`sessions/s%2F1/blobs/${HASH}`]);
  });

  test("are asked for again when they could not be had", async () => {
    let answers = 0;
    const { transport, asked } = server(() =>
      answers++ ? Promise.resolve(new Blob(["x"])) : Promise.reject(new Error("gone")),
    );
    const medium = { mime: "image/png", hash: HASH };
    await expect(acquireMedium(transport, "s", medium).blob).rejects.toThrow("gone");
    expect((await acquireMedium(transport, "s", medium).blob).size).toBe(1);
    expect(asked).toHaveLength(2);
  });

  test("are never asked for under a name that is no hash", async () => {
    const { transport, asked } = server(() => Promise.resolve(new Blob()));
    await expect(
      acquireMedium(transport, "s", { mime: "image/png", hash: "../../api/shutdown" }).blob,
    ).rejects.toThrow();
    expect(asked).toEqual([]);
  });
});

describe("kinds of media", () => {
  test.each(["text/javascript", "application/javascript", "image/x-evil", "__proto__", "constructor", ""])(
    "%s is not drawn",
    (mime) => {
      expect(lookOf(mime)).toBe("unknown");
      expect(fileName(mime, HASH)).toBe("unknown-aaaaaaaa.bin");
    },
  );

  test("a GIF of one image does not move, whatever its bytes look like", () => {
    const head = [...new TextEncoder().encode("GIF89a"), 1, 0, 1, 0, 0, 0, 0];
    const image = [0x2c, 0, 0, 0, 0, 1, 0, 1, 0, 0, 2, 2, 0x2c, 0x2c, 0];
    expect(isAnimated(Uint8Array.from([...head, ...image, 0x3b]))).toBe(false);
    expect(isAnimated(Uint8Array.from([...head, ...image, ...image, 0x3b]))).toBe(true);
  });
});
