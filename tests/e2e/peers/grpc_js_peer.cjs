// gRPC client for Node.js of the end-to-end tests, controlled by standard input and output.
//
// TARGET RATE    Calls TARGET at RATE per second. Responds to each line on standard input with the
//                counts so far: JSON of responses by zone, failures under "". A line "rate N" changes
//                the rate first. At rate 0 it only connects.
//
// CommonJS, because its modules are found through NODE_PATH.

'use strict';

const grpc = require('@grpc/grpc-js');
const readline = require('node:readline');

require('@grpc/grpc-js-xds').register();

const METHOD = '/plimsoll.test.Zones/Where';
const [target, firstRate] = process.argv.slice(2);

const counts = {};
let rate = Number(firstRate);
const client = new grpc.Client(target, grpc.credentials.createInsecure());
const same = (bytes) => bytes;

function call() {
  const options = { deadline: Date.now() + 20_000 };
  const metadata = new grpc.Metadata({ waitForReady: true });
  client.makeUnaryRequest(METHOD, same, same, Buffer.alloc(0), metadata, options, (error, zone) => {
    if (error) {
      console.error(error.message);
    }
    const name = error ? '' : zone.toString();
    counts[name] = (counts[name] ?? 0) + 1;
  });
}

// Connect without a call, so that resources are subscribed.
client.getChannel().getConnectivityState(true);

// Catches up on late calls, at most one second, so that the rate holds on a busy machine.
let due = performance.now();
setInterval(() => {
  const now = performance.now();
  due = Math.max(due, now - 1000);
  for (; rate > 0 && due <= now; due += 1000 / rate) {
    call();
  }
}, 5);

readline.createInterface({ input: process.stdin }).on('line', (line) => {
  const [word, number] = line.split(' ');
  if (word === 'rate') {
    rate = Number(number);
  }
  console.log(JSON.stringify(counts));
}).on('close', () => process.exit(0));
