// An OpenID Connect provider for tests: `node server.mjs MODULES CONFIG`, where CONFIG is JSON (see oidc_provider.py).
// Below /admin the tests rotate keys, replace clients and people, cause an outage, and read the counts of requests.
import { generateKeyPair } from 'node:crypto'
import { createServer } from 'node:http'
import { pathToFileURL } from 'node:url'
import { promisify } from 'node:util'

const modules = `${pathToFileURL(process.argv[2])}/oidc-provider/lib`
const { Provider } = await import(`${modules}/index.js`)
const { createMemoryAdapter } = await import(`${modules}/adapters/memory_adapter.js`)

const SCOPE = 'catalog'
const DEVICE_CODE = 'urn:ietf:params:oauth:grant-type:device_code'
const KEY_TYPES = {
  RS256: ['rsa', { modulusLength: 2048 }],
  PS256: ['rsa', { modulusLength: 2048 }],
  ES256: ['ec', { namedCurve: 'P-256' }],
  EdDSA: ['ed25519', {}],
}
const COUNTED = { '/.well-known/openid-configuration': 'discovery', '/jwks': 'jwks', '/token': 'token' }

let config = JSON.parse(process.argv[3])
let keys = []
let generation = 0
let answer
let outage = {}
let counts = { discovery: 0, jwks: 0, token: 0 }
const hanging = new Set()
// Shared by all generations of keys, so that sessions and codes survive a rotation.
const adapter = createMemoryAdapter()

async function newKey(alg) {
  const { privateKey } = await promisify(generateKeyPair)(...KEY_TYPES[alg])
  return { ...privateKey.export({ format: 'jwk' }), alg, use: 'sig', kid: `${alg}-${generation}` }
}

async function rotate(keepOld) {
  generation += 1
  const fresh = await Promise.all(Object.keys(KEY_TYPES).map(newKey))
  keys = keepOld ? [...fresh, ...keys] : fresh
  start()
}

function registered([client_id, { secret, redirect_uris }]) {
  if (secret) {
    return { client_id, client_secret: secret, grant_types: ['client_credentials'], redirect_uris: [], response_types: [] }
  }
  return {
    client_id,
    application_type: 'native',
    token_endpoint_auth_method: 'none',
    grant_types: ['authorization_code', 'refresh_token', DEVICE_CODE],
    response_types: ['code'],
    redirect_uris,
  }
}

function resourceServer(client) {
  const { audience, algorithm, lifetime_seconds } = config.clients[client.clientId]
  return {
    scope: SCOPE,
    audience: audience || config.audience,
    accessTokenFormat: 'jwt',
    accessTokenTTL: lifetime_seconds,
    jwt: { sign: { alg: algorithm, kid: `${algorithm}-${generation}` } },
  }
}

// A client with a wrong clock, or with claims that a provider would not issue by itself. A claim that is null is left out.
function change(token, payload) {
  const { clock_offset_seconds, changed_claims } = config.clients[token.clientId]
  for (const time of ['iat', 'exp']) payload[time] += clock_offset_seconds
  for (const [name, value] of Object.entries(changed_claims)) {
    if (value === null) delete payload[name]
    else payload[name] = value
  }
}

function account(id) {
  const person = config.people[id]
  return person && { accountId: id, claims: () => ({ ...person, sub: id }) }
}

function start() {
  const provider = new Provider(config.issuer, {
    adapter,
    clients: Object.entries(config.clients).map(registered),
    jwks: { keys },
    scopes: ['openid', 'offline_access', SCOPE],
    claims: { openid: ['sub', ...new Set(Object.values(config.people).flatMap(Object.keys))] },
    conformIdTokenClaims: false,
    cookies: { keys: ['the tests'] },
    findAccount: (_, id) => account(id),
    issueRefreshToken: (_, client) => client.grantTypeAllowed('refresh_token'),
    extraTokenClaims: (_, token) => config.people[token.accountId] ?? config.clients[token.clientId].claims,
    formats: { customizers: { jwt: (_, token, { payload }) => change(token, payload) } },
    features: {
      clientCredentials: { enabled: true },
      deviceFlow: { enabled: true },
      devInteractions: { enabled: true },
      revocation: { enabled: true },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => `${config.issuer}/catalog`,
        useGrantedResource: () => true,
        getResourceServerInfo: (_, __, client) => resourceServer(client),
      },
    },
  })
  provider.on('server_error', (_, error) => console.error(error))
  answer = provider.callback()
}

const BROKEN = {
  error: (response) => response.writeHead(503).end('out of order'),
  garbage: (response) => response.writeHead(200, { 'content-type': 'application/json' }).end('<html>'),
  deep: (response) => response.writeHead(200, { 'content-type': 'application/json' }).end('{"a":' + '['.repeat(5000)),
  empty: (response) => response.writeHead(200, { 'content-type': 'application/json' }).end('{"keys":[]}'),
  disconnect: (response) => response.destroy(),
  hang: (response) => hanging.add(response),
}

const ADMIN = {
  counts: () => {},
  rotate: ({ keep_old }) => rotate(keep_old),
  configure: (changes) => {
    config = { ...config, ...changes }
    start()
  },
  outage: (broken) => {
    outage = broken
    for (const response of hanging) response.destroy()
    hanging.clear()
  },
  // As after the start, but with the newest keys.
  reset: (changes) => {
    ADMIN.outage({})
    keys = keys.filter(({ kid }) => kid.endsWith(`-${generation}`))
    counts = { discovery: 0, jwks: 0, token: 0 }
    ADMIN.configure(changes)
  },
}

async function administer(action, request, response) {
  let body = ''
  for await (const part of request) body += part
  try {
    await ADMIN[action](JSON.parse(body || '{}'))
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(counts))
  } catch (error) {
    response.writeHead(400).end(`${action}: ${error.message}`)
  }
}

await rotate(false)
createServer((request, response) => {
  const path = request.url.split('?')[0]
  const kind = COUNTED[path]
  if (path.startsWith('/admin/')) return administer(path.slice('/admin/'.length), request, response)
  if (kind) counts[kind] += 1
  return outage[kind] ? BROKEN[outage[kind]](response) : answer(request, response)
}).listen(config.port, '127.0.0.1')
