# A broker of Apache Kafka in the folder $folder, from the jars of kafka/pom.xml. Sourced by scripts in tests/.

# Sets the array java to a command line with the jars. Otherwise says what is missing, and passes. As root on
# Debian it installs what is missing.
have_broker() {
  { command -v mvn && command -v javac && command -v openssl; } >/dev/null ||
    bash packages.sh maven default-jdk-headless openssl >"$folder/log" 2>&1 || {
    echo "skipped: $(tail -n 1 "$folder/log")"
    exit 0
  }
  local jars
  jars=$(maven_jars kafka/pom.xml) || {
    echo "skipped: Maven cannot have the broker: $(grep -m 1 ERROR "$folder/log" || tail -n 1 "$folder/log")"
    exit 0
  }
  java=(java -Xmx512m -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -cp "$jars/*")
}

# Downloads the jars of a POM to a cache folder, and prints its path. Scripts may run at once, and Maven's own
# cache is for one at a time.
maven_jars() (
  cache=${XDG_CACHE_HOME:-$HOME/.cache}/flowgauge
  jars=$cache/kafka-$(cksum <"$1" | cut -d' ' -f1)
  mkdir -p "$cache"
  exec 9>"$cache/maven.lock"
  flock 9
  if [ ! -d "$jars" ]; then
    rm -rf "$jars.part"
    timeout 600 mvn -q -B -f "$1" dependency:copy-dependencies -DoutputDirectory="$jars.part" >"$folder/log" 2>&1 || return
    mv "$jars.part" "$jars"
  fi
  echo "$jars"
)

# Prints this many free ports.
free_ports() {
  python3 -c 'import socket, sys
probes = [socket.socket() for _ in range(int(sys.argv[1]))]
for probe in probes:
    probe.bind(("127.0.0.1", 0))
print(*(probe.getsockname()[1] for probe in probes))' "$1"
}

# Writes $folder/broker.properties of a broker without encryption at PORT: plain_broker PORT CONTROLLER
plain_broker() {
  cat >"$folder/broker.properties" <<END
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$2
listeners=PLAINTEXT://127.0.0.1:$1,CONTROLLER://127.0.0.1:$2
advertised.listeners=PLAINTEXT://127.0.0.1:$1
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs=$folder/broker
num.partitions=4
offsets.topic.replication.factor=1
group.initial.rebalance.delay.ms=0
END
  format_broker
}

# Creates the broker's folder according to $folder/broker.properties.
format_broker() {
  "${java[@]}" kafka.tools.StorageTool format -t "$("${java[@]}" kafka.tools.StorageTool random-uuid)" \
    -c "$folder/broker.properties" "$@" >"$folder/broker.log" 2>&1 || fail "the broker's folder"
}

fail() {
  echo "failed: $1"
  tail -n 20 "$folder"/*.log
  exit 1
}

# Waits 60 seconds at most until a command succeeds.
wait_for() {
  for _ in $(seq 300); do
    "${@:2}" 2>/dev/null && return
    sleep 0.2
  done
  fail "$1"
}

listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1"); }

# Starts it, and waits until it listens at PORT.
start_broker() {
  "${java[@]}" kafka.Kafka "$folder/broker.properties" >>"$folder/broker.log" 2>&1 &
  broker=$!
  wait_for "the broker does not start" listens "$1"
}

kill_broker() {
  kill -KILL "$broker"
  { wait "$broker" || true; } 2>/dev/null
  broker=
}
