// One conversation of the example client for each line on standard input, all in one process.
// A line is a URL and, if the client is to leave by itself, after how many episodes.

import { createInterface } from "node:readline";

import { converse } from "../../docs/examples/node/client.mjs";

for await (const line of createInterface({ input: process.stdin })) {
  const [url, episodes = "Infinity"] = line.split(" ");
  const settings = { env: "probe", sizes: [3, 2], clientName: "node" };
  converse({ url, ...settings, numEpisodes: Number(episodes) }).catch((error) => {
    console.error(error.message);
  });
}
