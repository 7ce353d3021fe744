/** Finds texts in the sources of the panel: those that go through the translation, and literals that look as if a user
 * reads them. */
import ts from "typescript";

export interface Literals {
  /** First arguments of `trans.__`, and first two of `trans._n`. */
  translated: { one: string; many?: string }[];
  /** Texts that no translation sees. */
  bypassing: string[];
  /** Calls whose text is not a literal: the catalog could not be compared with them. */
  computed: string[];
  /** Calls that run while the module is loaded, before the translation is set. */
  early: string[];
}

const SHOWN_ATTRIBUTES = new Set(["title", "aria-label", "placeholder", "label", "alt"]);
/** What is compared is a name, such as that of a key. */
const EQUALITY = new Set([ts.SyntaxKind.EqualsEqualsEqualsToken, ts.SyntaxKind.ExclamationEqualsEqualsToken]);
const LETTER = /\p{L}/u;
/** Words with a space between them, a capital letter at the beginning, or a colon and a space at the end. Class names,
 * keys and paths have none of these. */
const SENTENCE = /^\p{Lu}\p{Ll}+|\p{L}{2,} \p{L}|\p{L}: $/u;

export function literalsOf(name: string, source: string): Literals {
  const file = ts.createSourceFile(name, source, ts.ScriptTarget.Latest, true, ts.ScriptKind.TSX);
  const found: Literals = { translated: [], bypassing: [], computed: [], early: [] };
  visit(file, found, { shown: false });
  return found;
}

function visit(node: ts.Node, found: Literals, at: { shown: boolean }): void {
  if (ts.isImportDeclaration(node) || ts.isExportDeclaration(node) || ts.isTypeNode(node)) return;
  if (ts.isCallExpression(node) && isTranslation(node)) {
    takeTranslated(node, found);
    if (!ts.findAncestor(node, isLater)) found.early.push(node.getText());
    const values = node.arguments.slice(node.expression.getText().endsWith("_n") ? 2 : 1);
    for (const value of values) visit(value, found, at);
    return;
  }
  if (ts.isJsxText(node) && LETTER.test(node.text)) found.bypassing.push(node.text.trim());
  if (ts.isBinaryExpression(node) && EQUALITY.has(node.operatorToken.kind)) return;
  const text = textOf(node);
  if (text !== null && (at.shown ? LETTER.test(text) : SENTENCE.test(text))) found.bypassing.push(text);
  if (ts.isJsxAttribute(node)) {
    const attribute = node.name.getText();
    if (attribute === "class" || attribute === "key" || attribute === "role") return;
    ts.forEachChild(node, (child) => visit(child, found, { shown: SHOWN_ATTRIBUTES.has(attribute) }));
    return;
  }
  const child = ts.isJsxExpression(node) && (ts.isJsxElement(node.parent) || ts.isJsxFragment(node.parent));
  ts.forEachChild(node, (below) => visit(below, found, child ? { shown: true } : at));
}

/** What runs after the module is loaded: functions, and the fields of an object. */
const isLater = (node: ts.Node): boolean => ts.isFunctionLike(node) || ts.isPropertyDeclaration(node);

/** `trans.__(...)` and `trans._n(...)`; also `texts.__`, whose texts are those of a schema. */
function isTranslation({ expression }: ts.CallExpression): boolean {
  return /^(trans|texts|current\.texts)\.(__|_n)$/.test(expression.getText());
}

function takeTranslated(call: ts.CallExpression, found: Literals): void {
  const [one, many] = call.arguments.map((argument) => (ts.isStringLiteralLike(argument) ? argument.text : undefined));
  const plural = call.expression.getText().endsWith("_n");
  if (one === undefined || (plural && many === undefined)) found.computed.push(call.getText());
  else found.translated.push(plural && many !== undefined ? { one, many } : { one });
}

/** The fixed text of a literal, with its values left out; null for other nodes and for names of properties. */
function textOf(node: ts.Node): string | null {
  if (ts.isTemplateExpression(node)) {
    return [node.head.text, ...node.templateSpans.map(({ literal }) => literal.text)].join("…");
  }
  if (!ts.isStringLiteralLike(node)) return null;
  const { parent } = node;
  if (ts.isElementAccessExpression(parent) || ts.isCaseClause(parent)) return null;
  return ts.isPropertyAssignment(parent) && parent.name === node ? null : node.text;
}
