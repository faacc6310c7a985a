// graphile-worker as a child of the bench: node worker.js migrate | fill COUNT | drain | listen
//
// It speaks the lines that bench/children.py reads: {"ready": true}, then after one line of input its answer.
// Tuned for throughput: a local queue of 500 jobs, completions in batches, 100 jobs at once.
"use strict";

const readline = require("node:readline");
const { Pool } = require("pg");
const { Logger, makeWorkerUtils, run, runOnce } = require("graphile-worker");

const CHUNK = 10000;
const [mode, count] = process.argv.slice(2);
const url = process.env.TASKHARBOR_BENCH_ADDRESS;
const payload = { data: "x".repeat(100) };
const quiet = new Logger(() => (level, message) => {
  if (level === "error") console.error(message);
});
const pool = new Pool({ connectionString: url, max: 10 });
const preset = {
  worker: {
    concurrentJobs: 100,
    localQueue: { size: 500 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
  },
};

// Wall clock in seconds with fractions, as time.time() has it.
const now = () => (performance.timeOrigin + performance.now()) / 1000;
const tell = (answer) => process.stdout.write(JSON.stringify(answer) + "\n");
const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();

async function toldToGo() {
  tell({ ready: true });
  await lines.next();
}

async function migrate() {
  const utils = await makeWorkerUtils({ pgPool: pool, logger: quiet });
  await utils.migrate();
  await utils.release();
  tell({ ready: true });
}

async function fill(wanted) {
  const utils = await makeWorkerUtils({ pgPool: pool, logger: quiet });
  const add = (many) => utils.addJobs(Array.from({ length: many }, () => ({ identifier: "bench", payload })));
  await add(CHUNK); // The first call plans and compiles.
  await toldToGo();
  const started = now();
  for (let done = 0; done < wanted; done += CHUNK) await add(Math.min(CHUNK, wanted - done));
  tell({ count: wanted, started, ended: now() });
  await utils.release();
}

async function drain() {
  await pool.query("SELECT 1");
  await toldToGo();
  let handled = 0;
  let started;
  const bench = async () => {
    started ??= now();
    handled += 1;
  };
  // Resolves when the queue is empty and the last batch of completions is committed.
  await runOnce({ pgPool: pool, logger: quiet, preset, noHandleSignals: true, taskList: { bench } });
  tell({ count: handled, started: started ?? now(), ended: now() });
}

async function listen() {
  const bench = async (job) => tell({ number: job.number, at: now() });
  const options = { pgPool: pool, logger: quiet, preset, noHandleSignals: true, parsedCronItems: [] };
  const runner = await run({ ...options, taskList: { bench } });
  await toldToGo();
  await lines.next(); // The end of input ends the run.
  await runner.stop();
}

async function main() {
  const work = { migrate, fill: () => fill(Number(count)), drain, listen }[mode];
  await work();
  await pool.end();
  process.exit(0);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
