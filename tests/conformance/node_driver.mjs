// One conversation of the example client for each URL on standard input, all in one process.

import { createInterface } from "node:readline";

import { converse } from "../../docs/examples/node/client.mjs";

for await (const url of createInterface({ input: process.stdin })) {
  converse({ url, env: "probe", sizes: [3, 2], clientName: "node", numEpisodes: Infinity }).catch(
    (error) => console.error(error.message),
  );
}
