// gRPC client for Node.js: TARGET. For each line `COUNT DEADLINE WAIT`, makes calls and prints
// outcomes. CommonJS, because its modules are found through NODE_PATH.

'use strict';

const grpc = require('@grpc/grpc-js');
const readline = require('node:readline');

require('@grpc/grpc-js-xds').register();

const client = new grpc.Client(process.argv[2], grpc.credentials.createInsecure());
const same = (bytes) => bytes;

function call(deadline, waitForReady) {
  const options = { deadline: Date.now() + 1000 * deadline };
  const metadata = new grpc.Metadata({ waitForReady });
  return new Promise((resolve) => {
    const method = '/plimsoll.test.Peer/Call';
    client.makeUnaryRequest(method, same, same, Buffer.alloc(0), metadata, options, (error) => {
      resolve(error ? grpc.status[error.code] : 'OK');
    });
  });
}

// Connects without a call.
client.getChannel().getConnectivityState(true);

readline.createInterface({ input: process.stdin }).on('line', async (line) => {
  const [count, deadline, wait] = line.split(' ').map(Number);
  const calls = Array.from({ length: count }, () => call(deadline, wait === 1));
  const outcomes = {};
  for (const outcome of await Promise.all(calls)) {
    outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
  }
  console.log(JSON.stringify(outcomes));
}).on('close', () => process.exit(0));
