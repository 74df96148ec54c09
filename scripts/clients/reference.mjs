// The tracker of bittorrent-tracker (npm) on every address: HTTP and WebSocket at one port, with TLS at another one.
//
//   reference.mjs PACKAGE PORT TLS_PORT CERTIFICATE KEY

import { readFileSync } from 'node:fs';
import https from 'node:https';

const [directory, port, tlsPort, cert, key] = process.argv.slice(2);
// Not by the name of the package: that would load its client, which needs a native library.
const { default: Server } = await import(`${directory}/server.js`);

const server = new Server({ udp: false });
server.on('warning', (warning) => console.log(warning.message));
server.listen(Number(port));
const secure = https.createServer({ cert: readFileSync(cert), key: readFileSync(key) });
secure.on('request', (request, response) => server.onHttpRequest(request, response));
new server.ws.constructor({ server: secure }).on('connection', (socket, request) => {
  socket.upgradeReq = request;
  server.onWebSocketConnection(socket);
});
secure.listen(Number(tlsPort));
process.once('SIGTERM', () => process.exit(0));
