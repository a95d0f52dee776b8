# Functions for the 'by' lines of tasks.txt: the output of tshark and nfdump, as lines to count.

# fields FILE FIELD...: the fields of each packet by tshark, between tabs. Fragments stay apart; of nested
# headers, the outer one counts.
fields() {
  local file=$1 name
  shift
  set -- "${@/#/-e}"
  tshark -n -r "$file" -o ip.defragment:FALSE -o ipv6.defragment:FALSE \
    -T fields -E occurrence="${OCCURRENCE:-f}" -Y "${ONLY:-ip or ipv6}" "$@" 2>/dev/null
}

# flows FILE: source, destination, protocol, source port, destination port and bytes of each IP packet.
flows() {
  fields "$1" ip.src ipv6.src ip.dst ipv6.dst ip.proto ipv6.nxt \
    tcp.srcport udp.srcport tcp.dstport udp.dstport frame.len | awk -F'\t' -v OFS='\t' '
    { print $1 $2, $3 $4, $5 == "" ? $6 : $5, $7 $8 == "" ? 0 : $7 $8, $9 $10 == "" ? 0 : $9 $10, $11 }'
}

# most N: the N most frequent of the lines, each with its count.
most() {
  sort | uniq -c | sort -k1,1nr -k2 | awk -v n="$1" 'NR <= n { count = $1; sub(/^ *[0-9]+ /, ""); print $0, count }'
}

# sizes N: of lines of a key, a tab and bytes, the N most frequent keys, each with its lines and bytes.
sizes() {
  awk -F '\t' '{ n[$1]++; bytes[$1] += $2 } END { for (key in n) print key, n[key], bytes[key] }' \
    | sort -k2,2nr -k3,3nr | awk -v n="$1" 'NR <= n'
}

# heaviest N: of the same lines, the N keys with most bytes, each with its bytes. A key may hold tabs.
heaviest() {
  awk -F '\t' '
    { bytes = $NF; sub(/\t[^\t]*$/, ""); sum[$0] += bytes }
    END { for (key in sum) print sum[key] "\t" key }' \
    | sort -k1,1nr | awk -F '\t' -v n="$1" 'NR <= n { bytes = $1; sub(/^[^\t]*\t/, ""); print $0, bytes }'
}

# hierarchy PARTS: of lines of IPv4 addresses, the prefixes by whole bytes with more lines than one in PARTS,
# without those of longer such prefixes, each with its lines, in the order of their number.
hierarchy() {
  awk -v parts="$1" '
    function shortened(prefix, bytes, part, i) {
      split(prefix, part, ".")
      for (i = bytes + 1; i <= 4; i++) part[i] = 0
      return part[1] "." part[2] "." part[3] "." part[4]
    }
    { own[$0]++ }
    END {
      for (bytes = 4; bytes >= 0; bytes--) {
        split("", wider)
        for (prefix in own)
          if (own[prefix] * parts > NR) print bytes, prefix "/" 8 * bytes, own[prefix]
          else wider[shortened(prefix, bytes - 1)] += own[prefix]
        split("", own)
        for (prefix in wider) own[prefix] = wider[prefix]
      }
    }' | sort -k3,3nr -k2,2 | cut -d ' ' -f 2-
}

# number: the number of distinct lines.
number() {
  sort -u | wc -l
}

# netflow FILE OPTION...: nfdump's output for the flow records that nfpcapd makes from FILE.
netflow() {
  local file=$1 folder
  shift
  folder=$(mktemp -d)
  nfpcapd -r "$file" -w "$folder" >/dev/null 2>&1
  nfdump -R "$folder" -q "$@"
  rm -r "$folder"
}

# kept FILE EXPRESSION: packets and bytes that pass tcpdump's filter.
kept() {
  tcpdump -n -r "$1" -w - "$2" 2>/dev/null | tshark -n -r - -T fields -e frame.len 2>/dev/null \
    | awk '{ n++; bytes += $1 } END { print n + 0, bytes + 0 }'
}

# flags: the TCP flags that any of the lines of tcp.flags.str has, as flowgauge names them.
flags() {
  local text name seen=
  text=$(cat)
  for name in S:SYN A:ACK P:PSH F:FIN R:RST U:URG E:ECE C:CWR; do
    case $text in *"${name%:*}"*) seen+=+${name#*:} ;; esac
  done
  echo "${seen#+}"
}

# same FILE FILE: fails unless tshark reads the same packets in both.
same() {
  local file packets
  for file; do
    packets+=("$(ONLY=frame fields "$file" frame.time_epoch frame.len frame.cap_len ip.id tcp.seq_raw udp.checksum | md5sum)")
  done
  [ "${packets[0]}" = "${packets[1]}" ]
}
