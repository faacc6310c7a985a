// node worker.mjs [QUEUE…]: serves these queues, or `default`, with three handlers, until Ctrl-C or SIGTERM.
import { Snooze, Unrecoverable, Worker } from "./taskharbor.mjs";

const handlers = {
  // What a handler returns is kept as the job's result.
  "greet": async ({ name }) => ({ greeting: `Hello, ${name}!` }),

  // Progress is seen in the dashboard; `context.signal` says when the job is to stop.
  "count": async ({ upto }, context) => {
    let sum = 0;
    for (let number = 1; number <= upto && !context.signal.aborted; number++) {
      sum += number;
      await context.progress(number, upto);
    }
    return { sum };
  },

  // An error is tried again by the job's own number of attempts; some are not worth it, or come too early.
  "divide": async ({ by, from = 1 }, context) => {
    if (typeof by !== "number") throw new Unrecoverable("divide needs a number `by`");
    if (by === 0) throw new Error("division by zero");
    if (by < 0 && context.fence === 1) throw new Snooze(0.1);
    return from / by;
  },
};

const worker = new Worker({
  server: process.env.TASKHARBOR_SERVER ?? "http://127.0.0.1:8080",
  token: process.env.TASKHARBOR_TOKEN,
  queues: process.argv.length > 2 ? process.argv.slice(2) : ["default"],
  handlers,
});
for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => worker.stop());
console.error(`worker ${worker.name} serves ${worker.queues.join(", ")} of ${worker.address}`);
try {
  await worker.run();
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
}
