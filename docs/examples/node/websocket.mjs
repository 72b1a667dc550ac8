// A WebSocket client (RFC 6455) over net or tls: binary messages, pings and closing, nothing else.
// Node has a WebSocket of its own from version 22 on; this file is for all others.

import { createHash, randomBytes } from "node:crypto";
import net from "node:net";
import tls from "node:tls";

const GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const CONTINUATION = 0, TEXT = 1, BINARY = 2, CLOSE = 8, PING = 9, PONG = 10;
const MAX_MESSAGE_BYTES = 64 * 1024 * 1024;
const CLOSE_TIMEOUT_MS = 2000;

/** Connect to a ws:// or wss:// URL; rejects if the server does not agree to the subprotocol. */
export async function connect(url, { subprotocol, token }) {
  const { protocol, hostname, port, host, pathname } = new URL(url);
  const secure = protocol === "wss:";
  const target = { host: hostname.replace(/^\[|\]$/g, ""), port: Number(port) || (secure ? 443 : 80) };
  const socket = secure
    ? tls.connect({ ...target, servername: net.isIP(target.host) ? undefined : target.host })
    : net.connect(target);
  const key = randomBytes(16).toString("base64");
  const lines = [
    `GET ${pathname} HTTP/1.1`,
    `Host: ${host}`,
    "Upgrade: websocket",
    "Connection: Upgrade",
    `Sec-WebSocket-Key: ${key}`,
    "Sec-WebSocket-Version: 13",
    `Sec-WebSocket-Protocol: ${subprotocol}`,
    ...(token ? [`Authorization: Bearer ${token}`] : []),
  ];
  const head = await new Promise((resolve, reject) => {
    let received = Buffer.alloc(0);
    const onData = (data) => {
      received = Buffer.concat([received, data]);
      const end = received.indexOf("\r\n\r\n");
      if (end < 0) return;
      socket.off("data", onData).off("error", reject);
      resolve({ text: received.toString("latin1", 0, end), rest: received.subarray(end + 4) });
    };
    socket.on("error", reject).on("data", onData);
    socket.on("close", () => reject(new Error(`${url} closed the connection during the handshake`)));
    socket.once(secure ? "secureConnect" : "connect", () => {
      socket.setNoDelay(true);
      socket.write(`${lines.join("\r\n")}\r\n\r\n`);
    });
  });
  const [status, ...headers] = head.text.split("\r\n");
  const fields = new Map(headers.map((line) => {
    const colon = line.indexOf(":");
    return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
  }));
  const accept = createHash("sha1").update(key + GUID).digest("base64");
  const agreed = fields.get("sec-websocket-protocol");
  if (!status.startsWith("HTTP/1.1 101") || fields.get("sec-websocket-accept") !== accept) {
    socket.destroy();
    throw new Error(`${url} answered ${status}`);
  }
  if (agreed !== subprotocol) {
    socket.destroy();
    throw new Error(`${url} does not speak ${subprotocol}`);
  }
  return new WebSocketClient(socket, head.rest);
}

class WebSocketClient {
  #socket;
  #buffer = Buffer.alloc(0);
  #parts = [];
  #messages = [];
  #waiting = null;
  #failure = null;
  #isOver = false;
  #hasClosed = false;

  constructor(socket, early) {
    this.#socket = socket;
    socket.on("data", (data) => this.#take(data));
    socket.on("close", () => this.#end());
    socket.on("error", () => this.#end());
    this.#take(early);
  }

  /** Send one binary message. */
  send(data) {
    if (!this.#hasClosed) this.#write(BINARY, data);
  }

  /** Return the next message; null once the connection is over. Throws if the peer broke RFC 6455. */
  async receive() {
    if (!this.#messages.length && !this.#failure && !this.#isOver) {
      await new Promise((resolve) => { this.#waiting = resolve; });
    }
    if (this.#messages.length) return this.#messages.shift();
    if (this.#failure) throw this.#failure;
    return null;
  }

  /** Close, and wait a moment for the peer to do the same. */
  async close(code = 1000) {
    this.#sendClose(code);
    if (!this.#isOver) {
      await new Promise((resolve) => {
        this.#socket.once("close", resolve);
        setTimeout(() => this.#socket.destroy(), CLOSE_TIMEOUT_MS).unref();
      });
    }
  }

  #sendClose(code) {
    if (this.#hasClosed) return;
    const payload = Buffer.alloc(2);
    payload.writeUInt16BE(code);
    this.#write(CLOSE, payload);
    this.#hasClosed = true;
  }

  #write(opcode, payload) {
    const size = payload.length;
    const extra = size < 126 ? 0 : size < 65536 ? 2 : 8;
    const head = Buffer.alloc(2 + extra);
    head[0] = 0x80 | opcode;
    head[1] = 0x80 | (extra === 0 ? size : extra === 2 ? 126 : 127);
    if (extra === 2) head.writeUInt16BE(size, 2);
    if (extra === 8) head.writeBigUInt64BE(BigInt(size), 2);
    const mask = randomBytes(4);
    const masked = Buffer.from(payload);
    for (let i = 0; i < size; i += 1) masked[i] ^= mask[i & 3];
    this.#socket.write(Buffer.concat([head, mask, masked]));
  }

  #take(data) {
    this.#buffer = Buffer.concat([this.#buffer, data]);
    while (!this.#failure && this.#takeFrame());
  }

  #takeFrame() {
    const buffer = this.#buffer;
    if (buffer.length < 2) return false;
    const short = buffer[1] & 0x7f;
    const begin = short === 126 ? 4 : short === 127 ? 10 : 2;
    if (buffer.length < begin) return false;
    const size = begin === 2 ? short
      : begin === 4 ? buffer.readUInt16BE(2) : Number(buffer.readBigUInt64BE(2));
    const soFar = this.#parts.reduce((sum, part) => sum + part.length, 0);
    if (buffer[1] & 0x80) return this.#fail("a masked frame of a server");
    if (size + soFar > MAX_MESSAGE_BYTES) return this.#fail(`a message of ${size + soFar} bytes`);
    if (buffer.length < begin + size) return false;
    this.#buffer = buffer.subarray(begin + size);
    this.#takePayload(buffer[0], buffer.subarray(begin, begin + size));
    return true;
  }

  #takePayload(first, payload) {
    const opcode = first & 0x0f;
    if (opcode === PING) return this.#hasClosed || this.#write(PONG, payload);
    if (opcode === PONG) return undefined;
    if (opcode === CLOSE) {
      this.#sendClose(1000);
      return this.#socket.end();
    }
    if (opcode === TEXT) return this.#fail("a text message, where all are binary");
    const isExpected = this.#parts.length ? opcode === CONTINUATION : opcode === BINARY;
    if (!isExpected) return this.#fail(`a frame of the kind ${opcode}`);
    this.#parts.push(payload);
    if (first & 0x80) {
      this.#messages.push(Buffer.concat(this.#parts));
      this.#parts = [];
      this.#wake();
    }
    return undefined;
  }

  #fail(what) {
    this.#failure = new Error(`the server sent ${what}`);
    this.#wake();
    return false;
  }

  #end() {
    this.#isOver = true;
    this.#wake();
  }

  #wake() {
    this.#waiting?.();
    this.#waiting = null;
  }
}
