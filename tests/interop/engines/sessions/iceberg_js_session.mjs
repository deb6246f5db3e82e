// iceberg-js: calls the method of the catalog that each line of JSON names, and answers with a line of JSON.
import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'

const home = process.argv[2]
const { uri, token } = JSON.parse(process.argv[3])
const { IcebergRestCatalog } = createRequire(`${home}/`)('iceberg-js')
const auth = token ? { type: 'bearer', token } : { type: 'none' }
const catalog = new IcebergRestCatalog({ baseUrl: uri, catalogName: 'main', auth })

for await (const line of createInterface({ input: process.stdin })) {
  const { call, with: parameters } = JSON.parse(line)
  let answer
  try {
    answer = { result: (await catalog[call](...parameters)) ?? null }
  } catch (error) {
    answer = { error: `${error.name}: ${error.status} ${error.icebergType}: ${error.message}` }
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`)
}
