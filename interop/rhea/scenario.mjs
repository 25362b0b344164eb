// One connection with rhea, told what to do in JSON lines on stdin, telling what happens on stdout. See ../README.md.
import { createInterface } from "node:readline";
import { createRequire } from "node:module";

const rhea = createRequire(`${process.env.NODE_MODULES ?? process.cwd()}/`)("rhea");
const { types } = rhea;
const [url, id] = process.argv.slice(2);
const { hostname: host, port } = new URL(url.replace("amqp:", "http:"));
const connection = rhea.create_container({ id }).connect({ host, port: Number(port), reconnect: false });
const links = new Map(), arrived = new Map(), sent = new Map();
const tell = (event, fields = {}) => process.stdout.write(JSON.stringify({ event, ...fields }) + "\n");

const wrap = { symbol: types.wrap_symbol, ulong: types.wrap_ulong, timestamp: types.wrap_timestamp };
function value(given) {
  if (given === null || typeof given !== "object") return given;
  const [[kind, inner]] = Object.entries(given);
  return wrap[kind](inner);
}
const values = (map) => Object.fromEntries(Object.entries(map).map(([key, inner]) => [key, value(inner)]));
const filter = ({ descriptor, text, map }) => types.wrap_described(text ?? types.wrap_symbolic_map(values(map)), descriptor);
const plain = (given) => (given instanceof Date ? given.getTime() : Array.isArray(given) ? given.map(String) : given);

const doing = {
  attach({ link: name, name: wire, role, address, properties, filters, credit, durable, presettled }) {
    const options = { name: wire };
    if (Object.keys(properties).length) options.properties = values(properties);
    let link;
    if (role === "producer") {
      link = connection.open_sender({ ...options, target: { address } });
    } else {
      const source = { address };
      if (Object.keys(filters).length) source.filter = Object.fromEntries(Object.entries(filters).map(([key, one]) => [key, filter(one)]));
      if (durable) Object.assign(source, { durable: 2, expiry_policy: "never" });
      link = connection.open_receiver({ ...options, source, credit_window: 0, autoaccept: false, snd_settle_mode: presettled ? 1 : 2 });
      if (credit) link.add_credit(credit);
    }
    links.set(name, link);
    link.called = name;
  },
  send({ link: name, bodies, target, key, n, "relayed-from": relayed, sequence }) {
    for (const [place, body] of bodies.entries()) {
      const message = { body }, annotations = {};
      if (target) annotations["event-streams-target-partition"] = types.wrap_symbol(target);
      if (relayed) annotations["event-streams-source-partition"] = types.wrap_symbol(relayed);
      if (sequence !== undefined) annotations["x-opt-amqp-streams-sequence"] = types.wrap_ulong(sequence + place);
      if (Object.keys(annotations).length) message.delivery_annotations = annotations;
      if (key) message.message_annotations = { "event-streams-group-key": key };
      if (n) message.application_properties = { n: types.wrap_int(Number(n)) };
      sent.set(links.get(name).send(message), body);
    }
  },
  settle({ link, outcome, bodies }) {
    for (const body of bodies) {
      const delivery = arrived.get(`${link} ${body}`);
      ({ accepted: () => delivery.accept(), rejected: () => delivery.reject(), released: () => delivery.release({}),
        modified: () => delivery.modified({ delivery_failed: false }) })[outcome]();
    }
  },
  credit: ({ link, credit }) => links.get(link).add_credit(credit),
  detach({ link }) { links.get(link).close(); links.delete(link); },
};

function attached(link, terminus) {
  tell("attached", {
    link: link.called,
    terminus: Boolean(terminus?.address), // rhea makes an empty one of null
    properties: Object.fromEntries(Object.entries(link.properties ?? {}).map(([key, inner]) => [key, plain(inner)])),
    filters: Object.keys(terminus?.filter ?? {}),
    durable: Boolean(terminus?.durable) && String(terminus.expiry_policy) === "never",
  });
}
function ended(link) {
  if (links.get(link.called) !== link) return; // detached here
  const { condition, info } = link.error ?? {};
  tell("detached", { link: link.called, condition: condition && String(condition), info: info && Object.fromEntries(Object.entries(info)) });
  if (link.is_open()) link.close();
}
connection.on("connection_open", () => {
  const offered = connection.remote.open.offered_capabilities ?? [];
  tell("opened", { offered: (Array.isArray(offered) ? offered : [offered]).map(String) });
});
connection.on("receiver_open", ({ receiver }) => attached(receiver, receiver.remote.attach.source));
connection.on("sender_open", ({ sender }) => attached(sender, sender.remote.attach.target));
for (const event of ["receiver_error", "sender_error"]) connection.on(event, () => {}); // told with the end
connection.on("receiver_close", ({ receiver }) => ended(receiver));
connection.on("sender_close", ({ sender }) => ended(sender));
connection.on("message", ({ receiver, delivery, message }) => {
  if (!receiver.is_open() && !links.has(receiver.called)) return;
  arrived.set(`${receiver.called} ${message.body}`, delivery);
  const annotations = Object.fromEntries(Object.entries(message.delivery_annotations ?? {}).map(([key, inner]) => [key, plain(inner)]));
  const key = message.message_annotations?.["event-streams-group-key"] ?? null;
  tell("delivery", { link: receiver.called, body: message.body, annotations, key });
});
for (const outcome of ["accepted", "rejected", "released", "modified"])
  connection.on(outcome, ({ sender, delivery }) => {
    const condition = delivery.remote_state?.error?.condition;
    tell("outcome", { link: sender.called, body: sent.get(delivery), outcome, condition: condition && String(condition) });
  });
connection.on("disconnected", () => { tell("disconnected"); process.stdin.destroy(); });
connection.on("connection_error", () => {});
createInterface({ input: process.stdin }).on("line", (line) => { const command = JSON.parse(line); doing[command.do](command); });
