#!/usr/bin/env bash
# Tests an agent whose Apache Kafka broker is killed and restarted, and then an agent that is killed while the
# broker is down: nothing is lost, and readers that drop repeated ids see nothing twice. Then agents with
# encrypted connections, one of them with a broker that it must not trust.
# Without Java, Maven or a network it says so and passes; as root on Debian it installs what is missing.
#
# Usage: kafka.sh FLOWGAUGE
set -euo pipefail
flowgauge=$(realpath "$1")
cd "$(dirname "$0")"
folder=$(mktemp -d)
broker= agent=
trap 'kill -KILL $broker $agent 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$folder"' EXIT

. kafka/broker.sh
have_broker

read -r plain sasl tls controller < <(free_ports 4)
# An authority, and certificates that it signs for the broker and for an agent.
(
  cd "$folder"
  openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout authority.key -out authority.pem
  for name in broker edge; do
    openssl req -newkey rsa:2048 -nodes -subj "/CN=$name" -keyout "$name.key" -out "$name.request"
    openssl x509 -req -in "$name.request" -CA authority.pem -CAkey authority.key -CAcreateserial -days 2 \
      -extfile <(echo "subjectAltName=IP:127.0.0.1") -out "$name.pem"
  done
  cat broker.key broker.pem >broker.store
  chmod 600 edge.key
) 2>"$folder/certificates" || {
  cat "$folder/certificates"
  exit 1
}
cat >"$folder/broker.properties" <<END
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$controller
listeners=PLAINTEXT://127.0.0.1:$plain,SASL_PLAINTEXT://127.0.0.1:$sasl,SASL_SSL://127.0.0.1:$tls,CONTROLLER://127.0.0.1:$controller
advertised.listeners=PLAINTEXT://127.0.0.1:$plain,SASL_PLAINTEXT://127.0.0.1:$sasl,SASL_SSL://127.0.0.1:$tls
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
listener.name.sasl_plaintext.sasl.enabled.mechanisms=PLAIN
listener.name.sasl_ssl.sasl.enabled.mechanisms=SCRAM-SHA-256
listener.name.sasl_plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_edge="not so secret";
listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
ssl.keystore.type=PEM
ssl.keystore.location=$folder/broker.store
ssl.truststore.type=PEM
ssl.truststore.location=$folder/authority.pem
listener.name.sasl_ssl.ssl.client.auth=required
log.dirs=$folder/broker
num.partitions=3
offsets.topic.replication.factor=1
END
# Starts the agent NAME, which sends to PORT, with more fields for the sink.
start_agent() {
  cat >"$folder/$1.yaml" <<END
agent: { name: $1, data: $folder/$1/data }
sources: [{ replay: $folder/capture.pcap }]
measurements:
  flows: { epoch: 200ms, tasks: [top, entropy], memory: 4MiB, top: 20 }
  hosts: { key: source, epoch: 500ms, algorithm: count-min, tasks: [top], memory: 128KiB }
sinks:
  files: { path: $folder/$1/reports.jsonl }
  kafka: { brokers: ['127.0.0.1:$2'], topic: $1, what: [report, snapshot]$3 }
END
  "$flowgauge" run -C "$folder/$1.yaml" 2>>"$folder/$1.log" &
  agent=$!
}

end_agent() {
  kill -TERM "$agent"
  wait "$agent" || fail "the agent ends with $?"
  agent=
}

# Whether an agent's log has a line this often.
said() { [ "$(grep -c "$2" "$folder/$1.log")" -ge "$3" ]; }

compare() {
  "${java[@]}" kafka/Reader.java "127.0.0.1:$plain" "$1" >"$folder/records" 2>"$folder/reader.log" || fail "the reader ends with $?"
  python3 kafka/compare.py "$flowgauge" "$folder/records" "$folder/$1" "$2" || fail "$1"
}

"$flowgauge" generate --packets 100000 --rate 10000 --flows 500 --seed 1 -o "$folder/capture.pcap"
format_broker --add-scram 'SCRAM-SHA-256=[name=edge,password=not so secret]'

start_broker "$sasl"
start_agent one "$plain" ""
sleep 3
kill_broker
wait_for "the agent does not notice that the broker is away" said one "trying again" 2
sleep 2
start_broker "$sasl"
wait_for "the agent does not come back to the broker" said one "' works again" 2
sleep 2
end_agent
compare one all

touch "$folder/password"
chmod 600 "$folder/password"
echo "not so secret" >"$folder/password"
login=", sasl: { user: edge, password-file: $folder/password }"
start_agent two "$sasl" "$login"
sleep 3
kill_broker
sleep 3
kill -KILL "$agent"
{ wait "$agent" || true; } 2>/dev/null
start_agent two "$sasl" "$login"
sleep 2
start_broker "$sasl"
wait_for "missed epochs are not sent" said two "from the journal" 2
wait_for "the agent does not come back to the broker" said two "' works again" 2
sleep 3
end_agent
compare two snapshots

scram=", sasl: { user: edge, password-file: $folder/password, mechanism: scram-sha-256 }"
files="certificate-file: $folder/edge.pem, key-file: $folder/edge.key"
start_agent four "$tls" "$scram, tls: { ca-file: $folder/authority.pem, $files }"
sleep 4
end_agent
compare four all
echo "ok: over TLS with a certificate of the agent, and SCRAM-SHA-256"

start_agent five "$tls" "$scram, tls: { $files }"
wait_for "an unknown authority is not named" said five "certificate verify failed" 1
end_agent
echo "ok: a broker whose certificate no known authority signed is named, and gets nothing"

echo "wrong" >"$folder/password"
start_agent three "$sasl" "$login"
wait_for "a wrong password is not named" said three "Authentication failed" 1
end_agent
grep -q "not so secret\|wrong" "$folder"/*.log && fail "a password is in a log"
echo "ok: a wrong password is named, and written nowhere"
