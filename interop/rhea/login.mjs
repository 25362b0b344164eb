// login URL with rhea. See ../README.md.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const rhea = createRequire(`${process.env.NODE_MODULES ?? process.cwd()}/`)("rhea");
const given = process.env;
const [, url] = process.argv.slice(2);
const { protocol, hostname: host, port } = new URL(url.replace(/^amqp/, "http"));
const file = (name) => (given[name] ? readFileSync(given[name]) : undefined);
const connection = rhea.create_container({ id: "rhea" }).connect({
  host, port: Number(port), reconnect: false,
  transport: protocol === "https:" ? "tls" : "tcp", servername: "localhost",
  ca: file("LOGIN_CA"), cert: file("LOGIN_CERT"), key: file("LOGIN_KEY"),
  username: given.LOGIN_USER, password: given.LOGIN_PASSWORD, token: given.LOGIN_TOKEN,
  enable_sasl_external: given.LOGIN_MECHANISM === "EXTERNAL",
});
const refused = (context) => {
  console.log(`refused: ${context.connection.error ?? context.error}`);
  process.exit(0);
};
connection.on("connection_open", () => { console.log("in"); connection.removeAllListeners("disconnected"); connection.close(); });
for (const event of ["disconnected", "connection_error", "connection_close"]) connection.on(event, refused);
connection.on("connection_close", () => process.exit(0));
