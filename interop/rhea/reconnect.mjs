// reconnect URL LOG with rhea and its own reconnection. See ../README.md.
import { createRequire } from "node:module";

const rhea = createRequire(`${process.env.NODE_MODULES ?? process.cwd()}/`)("rhea");
const [, url, log] = process.argv.slice(2);
const { hostname: host, port } = new URL(url.replace("amqp:", "http:"));
const connection = rhea.create_container().connect({ host, port: Number(port), max_reconnect_delay: 500 });
connection.on("disconnected", () => {}); // rhea writes a warning without it

const sender = connection.open_sender(log);
connection.open_receiver(log).on("message", ({ message }) => console.log(`got ${message.body}`));
connection.on("connection_error", () => {}); // the node says that it stops

let sent = 0;
setInterval(() => {
  if (sender.sendable()) sender.send({ body: `${sent++}` });
}, 50);
process.stdin.on("data", () => console.log(`next ${sent}`));
process.stdin.on("end", () => process.exit(0));
