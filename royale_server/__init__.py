"""The trainer side of Royale: batches inference for every client, learns, saves, watches itself."""
