import { expect, test } from "vitest";
import { codeTitle } from "../../src/turn/codeTitle";

const title = (code: string) => {
  const { verb, target } = codeTitle(code);
  return `${verb} ${target}`.trim();
};

test.each([
  ["df = pd.read_csv('data/sales.csv')\nprint(df.shape)", "Read sales.csv"],
  ["import pandas as pd\ndf = pd.read_excel(path, sheet_name='a')", "Read path"],
  ["rows = json.load(open('log.json'))", "Read log.json"],
  ["df = pd.read_csv('a.csv')\nprint(df['price'].max())", "Run print(df['price'].max())"],
  ["df = pd.read_csv('a.csv')", "Read a.csv"],
  ["n = df.shape[0]\nprint(n * 2)", "Run print(n * 2)"],
  ["with open('notes.txt') as f:\n    print(f.read())", "Read notes.txt"],
  ["df.groupby('month')['sales'].sum()", "Group df by month"],
  ["df.groupby(['year', 'month']).agg({'sales': 'sum'})", "Group df by year, month"],
  ["by = df.groupby(df['day'].dt.month)['mass'].mean()\nprint(by)", "Group df by month of day"],
  ["df = pd.read_csv('a.csv')\nprint(df.groupby(\"kind\").size())", "Group df by kind"],
  ["df.groupby(key).size()", "Group df"],
  ["df.sort_values('price', ascending=False).head(3)", "Sort df by price"],
  ["df.sort_values(by=['a', 'b'])", "Sort df by a, b"],
  ["print(df['kind'].value_counts())", "Count values of df['kind']"],
  ["df.nlargest(3, 'price')", "Find the largest of df"],
  ["df.describe()", "Describe df"],
  ["print(df.corr())", "Correlate df"],
  ["df.pivot_table(index='a', columns='b')", "Pivot df"],
  ["pd.crosstab(df.a, df.b)", "Cross-tabulate columns"],
  ["pd.merge(left, right, on='id')", "Combine left and right"],
  ["pd.concat([one, two])", "Combine one and two"],
  ["both = orders.merge(customers, on='id')", "Combine orders and customers"],
  ["people['age'] = people['age'].fillna(0)", "Fill missing values of people['age']"],
  ["df = df.dropna()", "Drop missing values of df"],
  ["df.drop_duplicates(inplace=True)", "Drop duplicates of df"],
  ["df.head()", "Show rows of df"],
  ["df.info()", "Look at df"],
  ["plt.plot(x, x ** 3)\nplt.show()", "Draw a line chart"],
  ["plt.scatter(df.a, df.b)\nplt.title('Mass by length')", "Draw a scatter plot: Mass by length"],
  ["df.plot(kind='bar', x='a')\nplt.show()", "Draw a bar chart of df"],
  ["df['mass'].plot.hist(bins=20)", "Draw a histogram of df['mass']"],
  ["df['mass'].hist()", "Draw a histogram of df['mass']"],
  [
    "by_guild = df.groupby('guild')['heft'].mean()\nby_guild.plot(kind='bar')\nplt.show()",
    "Draw a bar chart of by_guild",
  ],
  ['fig, ax = plt.subplots()\nax.bar(names, values)\nax.set_title("Sales")', "Draw a bar chart: Sales"],
  ["fig, axes = plt.subplots(1, 2)\naxes[0].hist(a)\naxes[1].hist(b)", "Draw a histogram"],
  ["sns.heatmap(df.corr())", "Draw a heat map"],
  ["px.line(df, x='a', y='b', title='Prices of the year')", "Draw a line chart: Prices of the year"],
  ["df.to_csv('out/result.csv', index=False)", "Write result.csv"],
  ["print(df.to_json())", "Run print(df.to_json())"],
  ["plt.plot(x)\nplt.savefig('plot.png')", "Save the figure as plot.png"],
  ["with open('a.txt', 'w') as f:\n    f.write('x')", "Write a.txt"],
  ["model = LinearRegression()\nmodel.fit(X, y)\nprint(model.coef_)", "Fit LinearRegression"],
  ["RandomForestClassifier(n_estimators=10).fit(X, y)", "Fit RandomForestClassifier"],
  ["np.polyfit(x, y, 2)", "Fit a polynomial"],
  ["print(model.predict(X))", "Predict with model"],
  ["def area(r):\n    return 3.14 * r ** 2\n", "Define area"],
  ["class Ball:\n    pass\n\ndef throw(ball):\n    pass", "Define Ball, throw"],
  ["def area(r):\n    return r\nprint(area(2))", "Run print(area(2))"],
  ["import numpy as np\nimport pandas as pd", "Import numpy, pandas"],
  ["import math\nprint(math.sqrt(2))", "Run print(math.sqrt(2))"],
  ["# the sum\ntotal = sum(values)\nprint(total)", "Run print(total)"],
  ["x = 1", "Run x = 1"],
  ["import time\nfor i in range(1, 6):\n    print(i)\n    time.sleep(1)", "Run for i in range(1, 6): print(i)"],
  ["while n:\n    n -= 1\n    if n % 2:\n        print(n)", "Run while n: … print(n)"],
  ["for a in b:\n    c(a)\nprint(a)", "Run print(a)"],
  ['"""\nfor x in y:\n"""\nif x:\n    print(x)', "Run print(x)"],
  ["\n\n6 * 7", "Run 6 * 7"],
  ["# only a comment", "Run # only a comment"],
  ["", "Run"],
  ["print('df.groupby(\"a\")')", "Run print('df.groupby(\"a\")')"],
  ["# df.plot()\nprint(1)", "Run print(1)"],
  ['text = """df.describe()"""\nprint(text)', "Run print(text)"],
])("%j is titled %j", (code, said) => expect(title(code)).toBe(said));

test.each([
  ["df.groupby('a').sum()\nos.remove('a.csv')", "Run os.remove('a.csv')"],
  ["df.describe()\nsubprocess.run(['ls'])", "Run subprocess.run(['ls'])"],
  ["df.head()\n!rm -r data", "Run !rm -r data"],
  ["df.plot()\nexec(code)", "Run exec(code)"],
  ["Path('a').unlink()\ndf.head()", "Run Path('a').unlink()"],
  ["df.head()\nrequests.post(url, data=df)", "Run requests.post(url, data=df)"],
])("%j is named by the line that changes more than variables", (code, said) => expect(title(code)).toBe(said));

test("any text has a short title of one line, in a time that does not explode", () => {
  const parts = [
    "df",
    ".",
    "groupby(",
    "[",
    "'",
    '"""',
    "(",
    "\n",
    "plot",
    "#",
    "\\",
    "x=",
    "}",
    "a".repeat(50),
    "\u202e",
    "(",
  ];
  let state = 7;
  const draw = (below: number) => (state = (state * 1_103_515_245 + 12_345) % 2_147_483_648) % below;
  for (let run = 0; run < 500; run += 1) {
    const code = Array.from({ length: draw(40) }, () => parts[draw(parts.length)] ?? "").join("");
    const { verb, target } = codeTitle(code);
    expect(verb).not.toBe("");
    expect(target.length).toBeLessThanOrEqual(120);
    expect(target).not.toContain("\n");
  }
  const began = performance.now();
  const units = [
    "(",
    "a.",
    "a[",
    "'",
    "df.groupby(",
    "x.plot(",
    "a.a[a].",
    '"""',
    ".fit(",
    "open(",
    "import a\n",
    " ",
    "\n",
  ];
  for (const unit of [...units, "a=A(", "[[a,b,", "title=(", "a(", "def a\n", "a\n"]) codeTitle(unit.repeat(20_000));
  expect(performance.now() - began).toBeLessThan(20_000);
});
