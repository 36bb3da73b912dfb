// Answers of assets/planner.js without a browser: data and questions from standard input, answers to standard output, as JSON.
import { readFileSync } from "node:fs";
import { runInNewContext } from "node:vm";

const source = readFileSync(new URL("../../assets/planner.js", import.meta.url), "utf8");
const planner = runInNewContext(`${source}\nplanner`, { document: { getElementById: () => null } });
const { data, questions } = JSON.parse(readFileSync(0, "utf8"));
const answers = questions.map((question) => data.tensor_parallel.map((tp) => planner.answer(data, question, tp)));
process.stdout.write(JSON.stringify(answers));
