// send | receive | batches | info with rhea, the AMQP client for Node.js. See ../README.md.
import { createInterface } from "node:readline";
import { createRequire } from "node:module";

// The library lives where it was installed (NODE_MODULES), not beside this file.
const rhea = createRequire(`${process.env.NODE_MODULES ?? process.cwd()}/`)("rhea");
const { types } = rhea;
const [command, url, log, where, count] = process.argv.slice(2);
const { hostname: host, port } = new URL(url.replace("amqp:", "http:"));
const connection = rhea.create_container({ id: `rhea-${process.pid}` }).connect({ host, port: Number(port), reconnect: false });

const fail = (what) => (context) => {
  console.error(`${what}: ${context.connection?.error ?? context.receiver?.error ?? context.sender?.error ?? context.error}`);
  process.exit(1);
};
for (const event of ["disconnected", "connection_error", "session_error", "receiver_error", "sender_error", "rejected", "released"])
  connection.on(event, fail(event));

function close() {
  connection.removeAllListeners("disconnected");
  connection.close();
}

async function send() {
  const sender = connection.open_sender(log);
  let sent = 0, accepted = 0, ended = false;
  sender.on("accepted", () => {
    accepted += 1;
    if (ended && accepted === sent) { console.log(accepted); close(); }
  });
  for await (const line of createInterface({ input: process.stdin })) {
    while (!sender.sendable()) await new Promise((resolve) => sender.once("sendable", resolve));
    sender.send({
      message_annotations: { "event-streams-group-key": line.slice(0, 10) },
      body: rhea.message.data_section(Buffer.from(line)),
    });
    sent += 1;
  }
  ended = true;
  if (accepted === sent) { console.log(accepted); close(); }
}

function condition(place) {
  if (place.startsWith("time:")) return { "event-streams-timestamp": types.wrap_timestamp(Number(place.slice(5))) };
  return { "event-streams-offset": types.wrap_symbol(place === "earliest" ? "@earliest" : place.slice(7)) };
}

function receive() {
  const filter = { start: types.wrap_described(types.wrap_symbolic_map(condition(where)), "amqp:event-streams-delivery-annotations-filter") };
  const receiver = connection.open_receiver({ source: { address: log, filter }, credit_window: 500 });
  let left = Number(count);
  const lines = [];
  receiver.on("message", ({ message }) => {
    if (left <= 0) return;
    const from = message.delivery_annotations;
    const body = message.body.content ?? message.body;
    lines.push([from["event-streams-source-partition"], from["event-streams-offset"], Number(from["event-streams-timestamp"]), body].join("\t"));
    left -= 1;
    if (left === 0) process.stdout.write(lines.join("\n") + "\n", close);
  });
}

// All events of a partition that there are, many in a delivery: an extension (docs/batched-deliveries.md).
function batches() {
  const receiver = connection.open_receiver({
    source: {
      address: log,
      filter: { start: types.wrap_described(types.wrap_symbolic_map(condition("earliest")), "amqp:event-streams-delivery-annotations-filter") },
      capabilities: "amqp-streams:batched-deliveries",
    },
    properties: { "event-streams-partition": types.wrap_symbol(where), "amqp-streams:batch-events": types.wrap_uint(100) },
    credit_window: 0,
    autosettle: true,
  });
  receiver.on("receiver_open", () => {
    const offered = [receiver.remote.attach.source.capabilities].flat().map(String);
    if (!offered.includes("amqp-streams:batched-deliveries")) throw new Error(`offered: ${offered}`);
    receiver.add_credit(1000);
    receiver.drain_credit();
  });
  const lines = [];
  receiver.on("message", ({ message }) => {
    const from = message.delivery_annotations;
    const { "amqp-streams:offsets": offsets = [], "amqp-streams:timestamps": timestamps = [] } = from;
    const stored = message.body?.multiple ? message.body.content : offsets.length ? [message.body.content] : [];
    if (offsets.length !== stored.length || timestamps.length !== stored.length) throw new Error("a batch has one of each for each event");
    stored.forEach((bytes, index) => {
      const event = rhea.message.decode(bytes);
      lines.push([from["event-streams-source-partition"], String(offsets[index]).padStart(16, "0"), Number(timestamps[index]), event.body.content].join("\t"));
    });
  });
  receiver.once("receiver_drained", () => process.stdout.write(lines.map((line) => `${line}\n`).join(""), close));
}

function info() {
  const receiver = connection.open_receiver({ source: `${log}/$info`, credit_window: 0 });
  receiver.on("message", ({ message }) => {
    for (const one of message.body.partitions)
      console.log([one.partition, one["earliest-offset"], one["latest-offset"]].join("\t"));
    close();
  });
  receiver.add_credit(1);
}

({ send, receive, batches, info })[command]();
