// gRPC client for Node.js of the end-to-end tests, controlled by standard input and output.
//
// TARGET RATE    Calls TARGET at RATE per second. Responds to each line on standard input with the
//                counts so far: JSON of responses by zone, failures under "". A line "rate N" changes
//                the rate first. At rate 0 it only connects.
// TARGET RATE load
//                Calls have 3 s, also to connect. "next" begins a window of calls and responds with the
//                last one when its calls have ended: JSON of calls sent, succeeded and failed.
//
// CommonJS, because its modules are found through NODE_PATH.

'use strict';

const grpc = require('@grpc/grpc-js');
const readline = require('node:readline');

require('@grpc/grpc-js-xds').register();

const METHOD = '/plimsoll.test.Zones/Where';
const [target, firstRate, mode] = process.argv.slice(2);
const isLoad = mode === 'load';

const counts = {};
const emptyWindow = () => ({ sent: 0, succeeded: 0, failed: 0, ended: () => {} });
let window = emptyWindow();
let rate = Number(firstRate);
const client = new grpc.Client(target, grpc.credentials.createInsecure());
const same = (bytes) => bytes;

function call() {
  const options = { deadline: Date.now() + (isLoad ? 3000 : 20_000) };
  const metadata = new grpc.Metadata({ waitForReady: !isLoad });
  const own = window;
  own.sent += 1;
  client.makeUnaryRequest(METHOD, same, same, Buffer.alloc(0), metadata, options, (error, zone) => {
    own[error ? 'failed' : 'succeeded'] += 1;
    own.ended();
    if (error && !isLoad) {
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

// Answers when all calls of the window have ended.
function endWindow() {
  const last = window;
  window = emptyWindow();
  last.ended = () => {
    if (last.sent === last.succeeded + last.failed) {
      last.ended = () => {};
      const { sent, succeeded, failed } = last;
      console.log(JSON.stringify({ sent, succeeded, failed }));
    }
  };
  last.ended();
}

readline.createInterface({ input: process.stdin }).on('line', (line) => {
  const [word, number] = line.split(' ');
  if (word === 'next') {
    endWindow();
    return;
  }
  if (word === 'rate') {
    rate = Number(number);
  }
  console.log(JSON.stringify(counts));
}).on('close', () => process.exit(0));
