import tseslint from "typescript-eslint";

export default tseslint.config(
  { ignores: ["node_modules", "build.mjs", "eslint.config.js", "vitest.config.ts"] },
  tseslint.configs.strictTypeChecked,
  {
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    rules: {
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
      "@typescript-eslint/no-confusing-void-expression": ["error", { ignoreArrowShorthand: true }],
      "@typescript-eslint/no-non-null-assertion": "error",
      "max-lines": ["error", { max: 400 }],
    },
  },
);
