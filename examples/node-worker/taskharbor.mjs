// A TaskHarbor worker in plain JavaScript: Node 18 or newer, and nothing else.
//
// It asks `taskharbor serve` for jobs, keeps their leases alive while handlers run, and says how each one ended.

/** Thrown by a handler when trying again cannot help: the job goes to the DLQ at once. */
export class Unrecoverable extends Error {}

/** Thrown by a handler when it is only too early: the job waits so many seconds, and no attempt is burned. */
export class Snooze extends Error {
  constructor(seconds) {
    super(`not before ${seconds} s from now`);
    this.seconds = seconds;
  }
}

/** An answer that is not what was hoped for. `problem` is the problem document, where there is one. */
class Refused extends Error {
  constructor(status, problem) {
    super(`${status} ${problem.detail ?? problem.title ?? ""}`);
    this.status = status;
    this.problem = problem;
  }
}

/** The job's own `timeout` is over. The server does not watch it: whoever runs the job does. */
class TimedOut extends Error {}

const pause = (ms, signal) =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });

const LONGEST_MS = 2 ** 31 - 1; // of a timer; a longer one would go off at once

export class Worker {
  /**
   * @param {object} options
   * @param {string} options.server   where `taskharbor serve` listens, such as http://127.0.0.1:8080
   * @param {string} [options.token]  a token with the role `worker`
   * @param {string[]} options.queues
   * @param {Record<string, (payload: any, context: Context) => any>} options.handlers  by type of job
   * @param {number} [options.slots]  jobs at once
   * @param {number} [options.leaseFor]  seconds that a silent worker keeps its jobs
   * @param {string} [options.name]
   * @param {(...words: any[]) => void} [options.log]
   */
  constructor({ server, token, queues, handlers, slots = 10, leaseFor = 30, name = `node-${process.pid}`, log = console.error }) {
    this.address = `${server.replace(/\/+$/, "")}/api/v1`;
    this.headers = { "Content-Type": "application/json", ...(token ? { Authorization: `Bearer ${token}` } : {}) };
    this.queues = queues;
    this.handlers = handlers;
    this.slots = slots;
    this.leaseFor = leaseFor;
    this.name = name;
    this.log = log;
    this.running = new Set();
    this.stopping = new AbortController();
  }

  /** Work until `stop` is called; then finish what runs. */
  async run() {
    let trouble = 0;
    while (!this.stopping.signal.aborted) {
      if (this.running.size >= this.slots) {
        await Promise.race(this.running);
        continue;
      }
      try {
        const leases = await this.reserve();
        trouble = 0;
        for (const lease of leases) this.begin(lease);
      } catch (error) {
        if (this.stopping.signal.aborted) break;
        // A token that is not good will not be good in a second either; a server that is away may come back.
        if (error instanceof Refused && error.status < 500 && error.status !== 429) throw error;
        trouble = Math.min(trouble + 1, 5);
        this.log(`no jobs to be had: ${error.message}; trying again`);
        await pause(500 * 2 ** trouble, this.stopping.signal);
      }
    }
    await Promise.all(this.running);
  }

  /** Take no more jobs. */
  stop() {
    this.stopping.abort();
  }

  async reserve() {
    const asked = {
      queues: this.queues,
      types: Object.keys(this.handlers),
      limit: this.slots - this.running.size,
      lease_for: this.leaseFor,
      wait: 20,
      worker: this.name,
    };
    return (await this.post("/leases", asked, this.stopping.signal)).leases;
  }

  begin(lease) {
    const work = this.work(lease).finally(() => this.running.delete(work));
    this.running.add(work);
  }

  /** One job, from its lease to its end. Never throws. */
  async work(lease) {
    const context = new Context(this, lease);
    const beat = setInterval(() => context.extend(), (this.leaseFor * 1000) / 3);
    const handler = async () => this.handlers[lease.job.type](lease.job.payload, context);
    let timer;
    let ending;
    try {
      const result = await Promise.race([
        handler(),
        new Promise((_, reject) => {
          const { timeout } = lease.job;
          if (timeout === null || timeout * 1000 > LONGEST_MS) return;
          timer = setTimeout(() => reject(new TimedOut(`timed out after ${timeout} s`)), timeout * 1000);
        }),
      ]);
      ending = context.signal.aborted ? ["release", {}] : ["ack", { result: result ?? null }];
    } catch (error) {
      if (error instanceof TimedOut) {
        // A promise cannot be broken off: the handler is told to stop, and whatever it still does is not waited for.
        ending = ["retry", { error: error.message }];
        context.controller.abort(error);
      } else if (context.signal.aborted) ending = ["release", {}];
      else if (error instanceof Unrecoverable) ending = ["fail", { reason: error.message }];
      else if (error instanceof Snooze) ending = ["release", { delay: error.seconds }];
      else ending = ["retry", { error: String(error?.stack ?? error) }];
    } finally {
      clearInterval(beat);
      clearTimeout(timer);
      context.over = true;
    }
    if (!context.lost) await this.settle(lease, ...ending);
  }

  /** Say how a job ended. Saying it twice is harmless, so it is said again when the answer got lost. */
  async settle(lease, how, more) {
    for (let attempt = 0; attempt < 5; attempt++) {
      try {
        return await this.post(this.path(lease, how), { token: lease.token, ...more });
      } catch (error) {
        if (error instanceof Refused && error.status < 500) {
          this.log(`${how} of ${lease.id} was refused: ${error.message}`);
          // A result that cannot be kept would come again at every attempt.
          if (how === "ack" && error.status !== 409) await this.settle(lease, "fail", { reason: error.message });
          return;
        }
        await pause(200 * 2 ** attempt);
      }
    }
    this.log(`${how} of ${lease.id} could not be told: another worker will have the job when the lease ends`);
  }

  path(lease, how) {
    return `/leases/${encodeURIComponent(lease.id)}/${how}`;
  }

  async post(path, body, signal) {
    const answer = await fetch(this.address + path, {
      method: "POST",
      headers: this.headers,
      body: JSON.stringify(body),
      signal,
    });
    const document = await answer.json().catch(() => ({}));
    if (!answer.ok) throw new Refused(answer.status, document);
    return document;
  }
}

/** What a handler is given beside the payload. */
export class Context {
  constructor(worker, lease) {
    this.worker = worker;
    this.lease = lease;
    this.job = lease.job;
    /** Rises with every delivery of the job: for fencing effects elsewhere. */
    this.fence = lease.fence;
    this.lost = false;
    /** Whether the attempt has ended, and the lease is no longer to be extended. */
    this.over = false;
    this.controller = new AbortController();
    /** Aborted when the job is to stop: it was cancelled, its timeout is over, or the lease was lost. */
    this.signal = this.controller.signal;
  }

  /** Tell how far the job has come; the lease is extended with it. */
  async progress(done, total = null, note = "") {
    await this.extend({ done, total, note });
  }

  async extend(progress) {
    if (this.over) return;
    try {
      const lease = await this.worker.post(this.worker.path(this.lease, "extend"), {
        token: this.lease.token,
        lease_for: this.worker.leaseFor,
        ...(progress ? { progress } : {}),
      });
      if (lease.cancel_requested) this.controller.abort(new Error("cancelled"));
    } catch (error) {
      if (error instanceof Refused && (error.status === 409 || error.status === 404)) {
        this.lost = true;
        this.controller.abort(new Error("the lease was lost"));
      }
      // Otherwise the next beat tries again: the lease lasts for three.
    }
  }
}
