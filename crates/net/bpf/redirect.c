/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Redirects plain frames to ports of this process to the AF_XDP sockets of their queues, and passes
 * all others: for tests, and for clients.
 */
#include "sockets.h"

/* The UDP ports. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __be16);
	__type(value, __u8);
} ports SEC(".maps");

SEC("xdp")
int redirect(struct xdp_md *context)
{
	void *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
	struct frame frame;
	__be16 port;
	int plain;

	switch (parse_ethernet(&frame, data, end)) {
	case bpf_htons(ETH_P_IP):
		plain = parse_ip(&frame, 1);
		break;
	case bpf_htons(ETH_P_IPV6):
		plain = parse_ip(&frame, 0);
		break;
	default:
		return XDP_PASS;
	}
	if (!plain)
		return XDP_PASS;
	port = frame.udp->dest;
	return bpf_map_lookup_elem(&ports, &port) ? to_socket(context) : XDP_PASS;
}

char _license[] SEC("license") = "Dual MIT/GPL";
