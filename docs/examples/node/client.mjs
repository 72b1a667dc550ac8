// A client of the wire protocol royale.v1 without any package: it runs environments of its own for
// a royale server. The comments name the clauses of docs/protocol.md that the lines below them keep.

import { randomUUID } from "node:crypto";
import os from "node:os";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

import { connect } from "./websocket.mjs";

const PROTOCOL = 1;
const MAX_HEADER_BYTES = 262144, MAX_NESTING = 40, MAX_ARRAYS = 1024, MAX_DIMS = 8; // P48, P9

// --- msgpack: what P5 lets through, and nothing else ----------------------------------------------

/** A number that travels as a float even if it is whole. */
class Float { constructor(value) { this.value = value; } }

function pack(value, out) {
  if (value === null) out.push(Buffer.from([0xc0]));
  else if (typeof value === "boolean") out.push(Buffer.from([value ? 0xc3 : 0xc2]));
  else if (typeof value === "string") packText(value, out);
  else if (value instanceof Float || (typeof value === "number" && !Number.isInteger(value))) {
    const bytes = Buffer.alloc(9, 0xcb);
    bytes.writeDoubleBE(value instanceof Float ? value.value : value, 1);
    out.push(bytes);
  } else if (typeof value === "number") packInteger(value, out);
  else if (Array.isArray(value)) {
    packSize(value.length, 0x90, 0xdc, out);
    for (const item of value) pack(item, out);
  } else {
    const entries = Object.entries(value);
    packSize(entries.length, 0x80, 0xde, out);
    for (const [key, item] of entries) { packText(key, out); pack(item, out); }
  }
}

function packInteger(value, out) {
  if (value >= -32 && value < 128) { out.push(Buffer.from([value & 0xff])); return; }
  const bytes = Buffer.alloc(9, 0xd3);
  bytes.writeBigInt64BE(BigInt(value), 1);
  out.push(bytes);
}

function packText(text, out) {
  const bytes = Buffer.from(text, "utf8");
  if (bytes.length < 32) out.push(Buffer.from([0xa0 | bytes.length]));
  else { const head = Buffer.alloc(5, 0xdb); head.writeUInt32BE(bytes.length, 1); out.push(head); }
  out.push(bytes);
}

function packSize(size, short, long, out) {
  if (size < 16) { out.push(Buffer.from([short | size])); return; }
  const head = Buffer.alloc(3, long);
  head.writeUInt16BE(size, 1);
  out.push(head);
}

class Unpacker {
  #data; #at = 0; #utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

  constructor(data) { this.#data = data; }

  whole() {
    const value = this.#value(0);
    if (this.#at !== this.#data.length) throw new Error("bytes after the header");
    return value;
  }

  #bytes(count) {
    if (count > this.#data.length - this.#at) throw new Error("the header ends too early");
    this.#at += count;
    return this.#data.subarray(this.#at - count, this.#at);
  }

  #number(bits, kind) {
    const bytes = this.#bytes(bits / 8);
    if (kind === "float") return bits === 64 ? bytes.readDoubleBE() : bytes.readFloatBE();
    if (bits === 64) {
      const wide = kind === "int" ? bytes.readBigInt64BE() : bytes.readBigUInt64BE();
      return Number.isSafeInteger(Number(wide)) ? Number(wide) : wide;
    }
    return kind === "int" ? bytes.readIntBE(0, bits / 8) : bytes.readUIntBE(0, bits / 8);
  }

  #text(size) { return this.#utf8.decode(this.#bytes(size)); }

  #list(size, depth) {
    const list = [];
    for (let i = 0; i < size; i += 1) list.push(this.#value(depth + 1));
    return list;
  }

  #map(size, depth) {
    const map = Object.create(null);
    for (let i = 0; i < size; i += 1) {
      const key = this.#value(depth + 1);
      if (typeof key !== "string" || key in map) throw new Error("a key is no text, or there twice");
      map[key] = this.#value(depth + 1);
    }
    return map;
  }

  #value(depth) {
    if (depth > MAX_NESTING) throw new Error("the header is nested too deep");
    const code = this.#bytes(1)[0];
    if (code < 0x80) return code;
    if (code >= 0xe0) return code - 0x100;
    if (code < 0x90) return this.#map(code & 0x0f, depth);
    if (code < 0xa0) return this.#list(code & 0x0f, depth);
    if (code < 0xc0) return this.#text(code & 0x1f);
    switch (code) {
      case 0xc0: return null;
      case 0xc2: return false;
      case 0xc3: return true;
      case 0xca: return this.#number(32, "float");
      case 0xcb: return this.#number(64, "float");
      case 0xcc: case 0xcd: case 0xce: case 0xcf: return this.#number(8 << (code - 0xcc), "uint");
      case 0xd0: case 0xd1: case 0xd2: case 0xd3: return this.#number(8 << (code - 0xd0), "int");
      case 0xd9: case 0xda: case 0xdb: return this.#text(this.#number(8 << (code - 0xd9), "uint"));
      case 0xdc: case 0xdd: return this.#list(this.#number(16 << (code - 0xdc), "uint"), depth);
      case 0xde: case 0xdf: return this.#map(this.#number(16 << (code - 0xde), "uint"), depth);
      default: throw new Error(`a value of the kind 0x${code.toString(16)}`);
    }
  }
}

// --- messages: a header and arrays (P4, P7 to P11) ------------------------------------------------

const ITEM_BYTES = {
  "?": 1, i1: 1, i2: 2, i4: 4, i8: 8, u1: 1, u2: 2, u4: 4, u8: 8, f2: 2, f4: 4, f8: 8,
};

/** An array that is sent: dtype code, dims, and a typed array of its elements. */
const array = (code, dims, data) => ({ code, dims, data });

function encodeMessage(header, arrays = {}) {
  const table = {}, pieces = [];
  let offset = 0;
  for (const [name, { code, dims, data }] of Object.entries(arrays)) {
    const gap = -offset & 7;
    pieces.push(Buffer.alloc(gap), Buffer.from(data.buffer, data.byteOffset, data.byteLength));
    table[name] = [code, dims, offset + gap];
    offset += gap + data.byteLength;
  }
  const packed = [];
  pack(Object.keys(table).length ? { ...header, a: table } : header, packed);
  const body = Buffer.concat(packed), front = Buffer.alloc(4);
  front.writeUInt32LE(body.length);
  return Buffer.concat([front, body, Buffer.alloc(-(4 + body.length) & 7), ...pieces]);
}

function decodeMessage(data) {
  if (data.length < 5) throw new Error(`a message of ${data.length} bytes`);
  const end = 4 + data.readUInt32LE(), tail = Math.ceil(end / 8) * 8;
  if (end - 4 > MAX_HEADER_BYTES || tail > data.length) throw new Error("the header is too long");
  const header = new Unpacker(data.subarray(4, end)).whole();
  if (header === null || typeof header !== "object" || Array.isArray(header)) {
    throw new Error("the header is no map");
  }
  return { header, arrays: readArrays(header.a ?? {}, data.subarray(tail)) };
}

function readArrays(table, tail) {
  const arrays = Object.create(null), spans = [];
  if (Object.keys(table).length > MAX_ARRAYS) throw new Error("too many arrays");
  for (const [name, entry] of Object.entries(table)) {
    const [code, dims, offset] = Array.isArray(entry) && entry.length === 3 ? entry : [];
    if (!Object.hasOwn(ITEM_BYTES, code)) throw new Error(`array ${name} is of the type ${code}`);
    if (!Array.isArray(dims) || dims.length > MAX_DIMS || !dims.every(isIndex)) {
      throw new Error(`array ${name} has the dims ${dims}`);
    }
    const size = dims.reduce((product, dim) => product * dim, ITEM_BYTES[code]);
    if (!isIndex(offset) || offset % 8 || !(offset + size <= tail.length)) {
      throw new Error(`array ${name} does not lie in the message`);
    }
    spans.push([offset, size]);
    arrays[name] = { code, dims, bytes: tail.subarray(offset, offset + size) };
  }
  let used = 0;
  for (const [offset, size] of spans.sort((a, b) => a[0] - b[0] || a[1] - b[1])) {
    if (offset !== Math.ceil(used / 8) * 8) throw new Error("arrays overlap or leave a hole");
    used = offset + size;
  }
  if (used !== tail.length) throw new Error("bytes after the last array");
  return arrays;
}

const isIndex = (value) => Number.isSafeInteger(value) && value >= 0;

/** The elements of an array that was received; it must have this type and these dims. */
function elements(arrays, name, code, dims) {
  const found = arrays[name];
  if (!found || found.code !== code || String(found.dims) !== String(dims)) {
    const got = found ? `${found.code} [${found.dims}]` : "nothing";
    throw new Error(`array ${name} is ${got}, expected ${code} [${dims}]`);
  }
  const aligned = new Uint8Array(found.bytes).buffer;
  return code === "u8" ? new BigUint64Array(aligned) : new BigInt64Array(aligned);
}

// --- environments -------------------------------------------------------------------------------

/** A small generator of random numbers in [0, 1), the same on every machine. */
function randomNumbers(seed) {
  let state = Number(BigInt.asUintN(32, seed ^ (seed >> 32n)));
  return () => {
    state = (state + 0x9e3779b9) | 0;
    let x = Math.imul(state ^ (state >>> 16), 0x21f0aaad);
    x = Math.imul(x ^ (x >>> 15), 0x735a2d97);
    return ((x ^ (x >>> 15)) >>> 0) / 2 ** 32;
  };
}

/** A pole on a cart that must not fall; 1 a step, at most 500 steps. */
class CartPole {
  static envId = "node-cartpole";
  static observationSpace = { kind: "box", dtype: "f4", shape: [4], low: "-inf", high: "inf" };
  static actionSpace = { kind: "discrete", n: 2, start: 0 };

  constructor(seed) { this.random = randomNumbers(seed); this.reset(); }

  reset() {
    this.state = Array.from({ length: 4 }, () => 0.1 * this.random() - 0.05);
    this.steps = 0;
  }

  step(action) {
    const [gravity, cart, pole, half, force, dt] = [9.8, 1.0, 0.1, 0.5, 10.0, 0.02];
    let [x, v, angle, turn] = this.state;
    const sin = Math.sin(angle), cos = Math.cos(angle), total = cart + pole;
    const push = ((action ? force : -force) + pole * half * turn * turn * sin) / total;
    const spin = (gravity * sin - cos * push) / (half * (4 / 3 - (pole * cos * cos) / total));
    v += dt * (push - (pole * half * spin * cos) / total);
    x += dt * v;
    turn += dt * spin;
    angle += dt * turn;
    this.state = [x, v, angle, turn];
    this.steps += 1;
    const terminated = Math.abs(x) > 2.4 || Math.abs(angle) > (12 * Math.PI) / 180;
    return { reward: 1, terminated, truncated: this.steps >= 500 };
  }

  observe() { return this.state; }
}

/** The probe of the conformance suite (docs/conformance.md): all that was done to it can be seen. */
class Probe {
  static envId = "RoyaleProbe-v0";
  static observationSpace = { kind: "box", dtype: "f4", shape: [4], low: 0, high: 2 ** 24 };
  static actionSpace = { kind: "discrete", n: 7, start: 2 };

  constructor(seed) {
    Object.assign(this, { seed: Number(seed % 65536n), episode: -1 });
    this.reset();
  }

  reset() { Object.assign(this, { episode: this.episode + 1, steps: 0, action: 0 }); }

  step(action) {
    const kind = (this.seed + this.episode) % 3;
    Object.assign(this, { steps: this.steps + 1, action });
    const isOver = this.steps >= 3 + kind;
    const reward = action + 10 * this.steps + 1000 * this.episode;
    return { reward, terminated: isOver && kind !== 1, truncated: isOver && kind !== 0 };
  }

  observe() { return [this.seed, this.episode, this.steps, this.action]; }
}

const ENVIRONMENTS = { cartpole: CartPole, probe: Probe };

/** The environments of one group, and the request that their rows make together. */
class Group {
  constructor(index, rows, lastRequest) { Object.assign(this, { index, rows, request: lastRequest }); }

  begin(Environment, seeds) {
    this.envs = Array.from(seeds, (seed) => new Environment(seed));
    this.tallies = this.envs.map(() => ({ return: 0, length: 0, since: performance.now() }));
    this.finished = 0;
    return this.#message({}, {}); // P27: no rewards before the first action
  }

  /** Carry out one action a row (P34); with `isLast` every open row is truncated, none asks (P44). */
  act(actions, isLast) {
    const began = performance.now();
    const rewards = new Float64Array(this.rows);
    const terminated = new Uint8Array(this.rows), truncated = new Uint8Array(this.rows);
    const finals = [], episodes = [];
    this.envs.forEach((env, row) => {
      const outcome = env.step(actions[row]), tally = this.tallies[row];
      rewards[row] = outcome.reward;
      terminated[row] = outcome.terminated ? 1 : 0;
      truncated[row] = outcome.truncated || (isLast && !outcome.terminated) ? 1 : 0;
      tally.return += outcome.reward;
      tally.length += 1;
      if (!terminated[row] && !truncated[row]) return;
      finals.push(...env.observe()); // P30: before the reset
      if (outcome.terminated || outcome.truncated) {
        episodes.push(record(row, tally));
        this.finished += 1;
      }
      this.tallies[row] = { return: 0, length: 0, since: performance.now() };
      env.reset(); // P31: the row asks at once, in its next episode
    });
    const outcome = {
      rewards: array("f8", [this.rows], rewards),
      terminated: array("?", [this.rows], terminated),
      truncated: array("?", [this.rows], truncated),
    };
    if (finals.length) outcome.f0 = array("f4", [finals.length / 4, 4], Float32Array.from(finals));
    const env_time_s = new Float((performance.now() - began) / 1000);
    return this.#message({ env_time_s, ...(episodes.length ? { episodes } : {}) }, outcome, isLast);
  }

  #message(header, outcome, isLast = false) {
    this.request += 1; // P33
    this.asking = isLast ? 0 : this.rows;
    const observed = isLast ? [] : this.envs.flatMap((env) => env.observe());
    const o0 = array("f4", [this.asking, 4], Float32Array.from(observed));
    const nobody = new Uint8Array(Math.ceil(this.rows / 8)); // P26
    const asks = isLast ? { asks: array("u1", [nobody.length], nobody) } : {};
    const { index: group, request, rows } = this;
    const full = { t: "step", group, request, rows, env_time_s: new Float(0), ...header };
    return encodeMessage(full, { ...asks, o0, ...outcome });
  }
}

function record(row, tally) {
  const time_s = new Float((performance.now() - tally.since) / 1000);
  return { row, return: new Float(tally.return), length: tally.length, time_s, metrics: {} };
}

// --- the conversation (P42) -----------------------------------------------------------------------

const LEGAL = {
  greeted: ["welcome", "busy", "stop", "fault"],
  ready: ["action", "busy", "stop", "fault"],
};

class Client {
  constructor(socket, Environment, sizes, options) {
    Object.assign(this, { socket, Environment, sizes, options });
    this.state = "greeted";
    this.isLeaving = false;
    this.groups = [];
  }

  async run() {
    this.socket.send(this.#hello());
    for (;;) {
      const data = await this.socket.receive();
      if (data === null) throw new Error("the connection to the server was lost");
      const { header, arrays } = decodeMessage(data);
      if (!LEGAL[this.state].includes(header.t)) {
        throw new Error(`the server sent ${header.t} to a client that is ${this.state}`);
      }
      if (header.t === "welcome") this.#begin(header, arrays);
      else if (header.t === "action") this.#act(header, arrays);
      else if (header.t === "fault") throw new Error(`fault ${header.code}: ${header.message}`);
      else if (header.t === "stop") return this.#leave(`the server stopped (${header.reason})`);
      if (this.groups.length && this.groups.every((group) => group.hasLeft)) {
        return this.#leave("all is done");
      }
    }
  }

  #hello() {
    const { observationSpace, actionSpace, envId } = this.Environment;
    return encodeMessage({
      t: "hello",
      protocol: [PROTOCOL, PROTOCOL],
      client_name: this.options.clientName,
      process_id: randomUUID(),
      resume_token: null,
      role: "train",
      env_id: envId,
      env_digest: "1",
      observation_space: observationSpace,
      action_space: actionSpace,
      groups: this.sizes,
      masks: false,
      episode_metrics: [],
      features: [],
      host: os.hostname().slice(0, 128),
      pid: process.pid,
      versions: { node: process.version },
    });
  }

  #begin(header, arrays) {
    const { protocol, horizon, last_requests: lastRequests } = header; // P24
    const fits = Array.isArray(lastRequests) && lastRequests.length === this.sizes.length
      && lastRequests.every(isIndex);
    if (protocol !== PROTOCOL || horizon !== 1 || header.restores || header.continues || !fits) {
      throw new Error("the welcome does not answer the hello");
    }
    const numSlots = this.sizes.reduce((sum, rows) => sum + rows, 0);
    const seeds = elements(arrays, "seeds", "u8", [numSlots]);
    let first = 0;
    this.state = "ready";
    this.sizes.forEach((rows, index) => {
      const group = new Group(index, rows, lastRequests[index]);
      this.groups.push(group);
      this.socket.send(group.begin(this.Environment, seeds.subarray(first, first + rows)));
      first += rows;
    });
    console.log(`joined run ${header.run_name} with ${numSlots} environments`);
  }

  #act(header, arrays) {
    const group = this.groups[header.group];
    if (!group || header.request !== group.request) { // P34: never guessed
      throw new Error(`an answer to request ${header.request} of group ${header.group}`);
    }
    if (Object.keys(arrays).length !== 1) throw new Error("an answer with other arrays than x0"); // P12
    const actions = Array.from(elements(arrays, "x0", "i8", [group.asking]), Number);
    const { n, start } = this.Environment.actionSpace;
    if (!actions.every((action) => action >= start && action < start + n)) {
      throw new Error(`actions ${actions} outside of the space`);
    }
    if (group.hasLeft) return; // the answer to a last step, in which no row asks (P28)
    this.#count();
    const isLast = this.isLeaving;
    this.socket.send(group.act(actions, isLast));
    group.hasLeft = isLast;
  }

  #count() {
    const finished = this.groups.reduce((sum, group) => sum + group.finished, 0);
    if (finished >= this.options.numEpisodes) this.isLeaving = true;
  }

  async #leave(reason) {
    this.socket.send(encodeMessage({ t: "goodbye", reason, exception: null })); // P44
    await this.socket.close(1000);
    return reason;
  }
}

/**
 * Hold one conversation with a server, from hello to goodbye; resolves to why it ended.
 *
 * Rejects if the server sends a fault, breaks the protocol, or is lost. `url` is ws:// or wss://,
 * `env` a key of ENVIRONMENTS, `sizes` the number of environments of each group. `hear` is called
 * with a function that makes the client leave in order.
 */
export async function converse({ url, env, sizes, clientName, numEpisodes, token, hear }) {
  const socket = await connect(url, { subprotocol: "royale.v1", token });
  const client = new Client(socket, ENVIRONMENTS[env], sizes, { clientName, numEpisodes });
  hear?.(() => { client.isLeaving = true; });
  try {
    return await client.run();
  } catch (error) {
    await socket.close(1002);
    throw error;
  }
}

// --- the command ----------------------------------------------------------------------------------

const USAGE = `usage: node client.mjs [--url ws://HOST:PORT] [--env cartpole|probe] [--num-envs N]
    [--groups 1|2] [--client-name NAME] [--num-episodes N]
The token of the server, if it wants one, is read from ROYALE_TOKEN.`;

function parseFlags() {
  const text = (value) => ({ type: "string", default: value });
  const { values } = parseArgs({
    options: {
      url: text("ws://127.0.0.1:8000"),
      env: text("cartpole"),
      "num-envs": text("4"),
      groups: text("1"),
      "client-name": text(`${os.hostname()}-node`.slice(0, 128)),
      "num-episodes": text("Infinity"),
    },
  });
  const numEnvs = Number(values["num-envs"]), numGroups = Number(values.groups);
  const isSound = Number.isInteger(numEnvs) && numEnvs >= numGroups && [1, 2].includes(numGroups);
  if (!isSound || !Object.hasOwn(ENVIRONMENTS, values.env) || !(values["num-episodes"] > 0)) {
    throw new Error(USAGE);
  }
  const first = Math.ceil(numEnvs / numGroups);
  return {
    url: values.url,
    env: values.env,
    sizes: numGroups === 1 ? [numEnvs] : [first, numEnvs - first],
    clientName: values["client-name"],
    numEpisodes: Number(values["num-episodes"]),
    token: process.env.ROYALE_TOKEN,
  };
}

async function main() {
  if (os.endianness() !== "LE") throw new Error("this example needs a little-endian machine (P9)");
  const hear = (leave) => { for (const name of ["SIGINT", "SIGTERM"]) process.once(name, leave); };
  console.log(await converse({ ...parseFlags(), hear }));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  main().catch((error) => {
    console.error(error.message);
    process.exitCode = 1;
  });
}
