# To be sourced: prints a free UDP port.
free_port() {
  python3 -c 'import socket
with socket.socket(type=socket.SOCK_DGRAM) as probe:
    probe.bind(("127.0.0.1", 0))
    print(probe.getsockname()[1])'
}
