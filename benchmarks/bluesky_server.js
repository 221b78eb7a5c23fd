// A server of Bluesky and a directory of its accounts, on this machine alone.
//
//   node bluesky_server.js MODULES PLC_PORT     (and PDS_… in the environment)
//
// The directory keeps what it is told in memory. Says `ready` when both answer.
'use strict'
const net = require('net')
const { createRequire } = require('module')

const [modules, plcPort] = process.argv.slice(2)
const from = createRequire(`${modules}/package.json`)
const listen = net.Server.prototype.listen
// Both would listen to everybody.
net.Server.prototype.listen = function (port, ...rest) {
  return listen.call(this, port, '127.0.0.1', ...rest)
}

async function main() {
  const { PDS, envToCfg, envToSecrets, readEnv } = from('@atproto/pds')
  const { PlcServer, MockDatabase } = from('@did-plc/server')
  await PlcServer.create({ db: new MockDatabase(), port: Number(plcPort) }).start()
  const environment = readEnv()
  const pds = await PDS.create(envToCfg(environment), envToSecrets(environment))
  await pds.start()
  process.stdin.on('end', () => process.exit(0)).resume() // it ends with who started it
  console.log('ready')
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
