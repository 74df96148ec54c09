/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Redirects plain frames to ports of this process to the AF_XDP sockets of their queues, where those
 * are of the port's worker, and passes all others: for tests, and for clients.
 */
#include "sockets.h"

/* Whose port it is. Queue q is one of worker q mod `workers`. */
struct owner {
	__u16 worker;
	__u16 workers;
};

/* The UDP ports. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __be16);
	__type(value, struct owner);
} ports SEC(".maps");

SEC("xdp")
int redirect(struct xdp_md *context)
{
	void *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
	const struct owner *owner;
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
	owner = bpf_map_lookup_elem(&ports, &port);
	if (!owner || context->rx_queue_index % owner->workers != owner->worker)
		return XDP_PASS;
	return to_socket(context);
}

char _license[] SEC("license") = "Dual MIT/GPL";
