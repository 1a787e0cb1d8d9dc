// A gRPC client for Node.js of the end-to-end tests, driven over standard input and output.
//
// TARGET RATE    Calls TARGET at RATE per second. Each line on standard input is answered with the
//                counts so far: JSON of answers by zone, failures under "". A line "rate N" first
//                changes the rate. At rate 0 it only connects.
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

// Without a call, nothing would be subscribed to.
client.getChannel().getConnectivityState(true);

// What is due is made up for, at most a second of it: the rate holds on a busy machine.
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
