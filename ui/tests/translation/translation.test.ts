import { afterEach, expect, test } from "vitest";
import {
  DATE_ALONE,
  ENGLISH,
  formatMoment,
  formatNumber,
  setTranslation,
  textsOf,
  trans,
  translationFor,
} from "../../src/translation/translation";

const CATALOG = {
  "": { language: "de-DE" },
  "Take %1": ["Nimm %1"],
  "%1 turn of %2": ["%1 Frage von %2", "%1 Fragen von %2"],
};

afterEach(() => setTranslation(ENGLISH));

test("a text of the catalog is translated, and any other one stays English", () => {
  setTranslation({ texts: textsOf(CATALOG), language: "de" });
  expect(trans.__("Take %1", "a % b")).toBe("Nimm a % b");
  expect(trans.__("Take %1 of %2", 1, 5)).toBe("Take 1 of 5");
  expect(trans.__("constructor")).toBe("constructor");
});

test("the number selects the form", () => {
  setTranslation({ texts: textsOf(CATALOG), language: "de" });
  expect(trans._n("%1 turn of %2", "%1 turns of %2", 1, "x")).toBe("1 Frage von x");
  expect(trans._n("%1 turn of %2", "%1 turns of %2", 0, "x")).toBe("0 Fragen von x");
  setTranslation(ENGLISH);
  expect(trans._n("%1 turn of %2", "%1 turns of %2", 2, "x")).toBe("2 turns of x");
});

test("the language of the page selects the catalog, whatever its region", () => {
  expect(translationFor("de-AT", { de: CATALOG }).texts.__("Take %1", 1)).toBe("Nimm 1");
  expect(translationFor("", { de: CATALOG })).toBe(ENGLISH);
  expect(translationFor("constructor", { de: CATALOG })).toBe(ENGLISH);
});

test("a time of today is a time, an earlier one a date, as the language writes it", () => {
  setTranslation({ texts: textsOf(CATALOG), language: "de-DE" });
  const noon = new Date();
  noon.setHours(17, 5, 0, 0);
  expect(formatMoment(noon.getTime() / 1_000)).toBe("17:05");
  const earlier = new Date(2025, 2, 9, 17, 5).getTime() / 1_000;
  expect(formatMoment(earlier)).toBe("09.03.2025, 17:05");
  expect(formatMoment(earlier, DATE_ALONE)).toBe("09.03.2025");
});

test("a number has the separators of the language, also for a tag that the browser does not know", () => {
  setTranslation({ texts: textsOf(CATALOG), language: "de-DE" });
  expect(formatNumber(1234)).toBe("1.234");
  setTranslation({ texts: textsOf(CATALOG), language: "not a tag" });
  expect(formatNumber(1234)).toBe("1,234");
});
