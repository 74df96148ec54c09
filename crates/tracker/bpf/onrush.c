/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Intake in the driver: what the daemon's intake answers at once or drops, for plain frames to its
 * addresses. The program answers connects, drops and counts what intake would drop, and redirects
 * other requests to the workers' AF_XDP sockets. A frame that it does not decide on it passes to
 * the kernel, which has the workers' UDP sockets.
 *
 * The checks are those of crates/tracker/src/intake/mod.rs, in their order. crates/tracker/src/xdp
 * has the other side of the maps.
 */
#include "../../net/bpf/sockets.h"
#include "siphash.h"

#define ACTION_CONNECT 0
#define ACTION_ANNOUNCE 1
#define ACTION_SCRAPE 2
#define MAGIC 0x41727101980
#define REQUEST_LEN 16
#define ANNOUNCE_LEN 98
/* The bits of a connection id that are its time bucket modulo four. */
#define TAG 3
/* From socket.h of the C library, which BPF programs do not have. */
#define AF_INET 2
#define AF_INET6 10
/* The loopback device of each network namespace, from which the kernel looks up its own routes. */
#define LOOPBACK 1

/* Where the daemon listens: an address on a device, with its VLAN. */
struct place {
	__u32 interface;
	__u16 vlan;
	__be16 port;
	struct address address;
};

/* The device's MAC address, and the number of its counters. */
struct device {
	__u8 mac[ETH_ALEN];
	__u16 counters;
};

/* Devices that have counters of their own. */
#define DEVICES 16

/* A time from the end of the one before. */
struct phase {
	__u64 end;   /* CLOCK_MONOTONIC, nanoseconds */
	__u32 tag;   /* of new connection ids */
	__u32 valid; /* bit n: ids with tag n */
};

/* In place of an XDP action: a worker has to answer the request. */
#define TO_WORKERS -1

#define PHASES 4
#define KEY_SETS 3

/* What the daemon renews every second, in two buffers, used alternately. */
struct rules {
	struct phase phases[PHASES];
	struct key keys[KEY_SETS][TAG + 1]; /* of new ids first, by tag */
	__u32 key_sets;
	__u32 flags;
};

enum flag {
	ANSWER_CONNECTS = 1,
	REFUSE_BOGONS = 2,
	/* Sources are blocked by the trie with number 0 or 1. */
	BLOCKED_0 = 4,
	BLOCKED_1 = 8,
	/* The next hop of a reply is looked up; otherwise replies go back to where they came from. */
	NEXT_HOP = 16,
};

enum refusal {
	SOURCE_PORT,
	BOGON,
	BLOCKED,
	SHORT,
	MAGIC_NUMBER,
	ACTION,
	CONNECTION_ID,
	REFUSALS,
};

/* Counters of one address family. */
struct family_counters {
	__u64 answered; /* connects */
	__u64 answered_bytes;
	__u64 refused_bytes;
	__u64 refused[REFUSALS];
};

/* Counters of one device and vCPU. */
struct counters {
	struct family_counters v4;
	struct family_counters v6;
	__u64 passed;   /* to the workers' UDP sockets: they have to be answered there */
	__u64 stale;    /* passed as the rules are old */
	__u64 martian;  /* dropped: from an address that no host has */
	__u64 checksum; /* dropped: the UDP checksum of a connect is wrong */
	__u64 no_route; /* passed, as there is no next hop for the reply */
	__u64 redirected; /* to the workers' AF_XDP sockets */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct place);
	__type(value, struct device);
} places SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct rules);
} rules SEC(".maps");

/* Which of the two buffers of rules is in force. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} in_force SEC(".maps");

/* The first bits of an address: the word of its family, then those of IPv4 or IPv6. */
struct prefix {
	__u32 length;
	__u32 family;
	__be32 words[4];
};

/* Blocked sources, each with the number of its counter. */
struct blocked {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 1048576);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct prefix);
	__type(value, __u32);
};
struct blocked blocked_0 SEC(".maps");
struct blocked blocked_1 SEC(".maps");

/* Requests from blocked sources, by the number of the counter: one for each block that the daemon
   may have (MAX_BLOCKS in crates/store/src/blocks.rs), and number 0. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 10001);
	__type(key, __u32);
	__type(value, __u64);
} block_counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, DEVICES);
	__type(key, __u32);
	__type(value, struct counters);
} counters SEC(".maps");

/* A request under examination. */
struct request {
	struct frame frame;
	const struct rules *rules;
	struct counters *counters;
	struct family_counters *family;
	struct address source;
	__u32 tag;
	__u32 valid;
};

/* The device that has the frame's destination; none where that is not ours. */
inline_function const struct device *find_device(const struct frame *frame, __u32 interface)
{
	struct place place = {
		.interface = interface,
		.vlan = frame->vlan,
		.port = frame->udp->dest,
		.address = destination_of(frame),
	};
	const struct device *device = bpf_map_lookup_elem(&places, &place);

	if (device && !is_mac(frame->ethernet->h_dest, device->mac))
		return 0;
	return device;
}

/* A source address that no host on a link has; the kernel drops such datagrams. */
inline_function int is_martian(const struct frame *frame)
{
	if (frame->is_v4) {
		__u32 ip = bpf_ntohl(v4_of(frame)->saddr);
		__u32 first = ip >> 24;

		return first == 0 || first == 127 || (first >= 224 && first < 240) || ip == ~0u;
	}
	const __be32 *words = v6_of(frame)->saddr.s6_addr32;

	if ((words[0] & bpf_htonl(0xff000000)) == bpf_htonl(0xff000000))
		return 1;
	if (words[0] | words[1])
		return 0;
	/* Unspecified, loopback, IPv4-mapped. */
	return (words[2] == 0 && (words[3] & bpf_htonl(0xfffffffe)) == 0) ||
	       words[2] == bpf_htonl(0xffff);
}

#define IN(address, network, length) (((address) ^ (network)) >> (32 - (length)) == 0)

/* As `SourceAddress::is_bogon` in crates/tracker/src/intake/source.rs. */
inline_function int is_bogon(const struct frame *frame)
{
	if (frame->is_v4) {
		__u32 ip = bpf_ntohl(v4_of(frame)->saddr);
		__u32 first = ip >> 24;

		return first == 0 || first == 10 || first == 127 || first >= 224 ||
		       IN(ip, 0x64400000u, 10) || IN(ip, 0xa9fe0000u, 16) || IN(ip, 0xac100000u, 12) ||
		       IN(ip, 0xc0a80000u, 16) || IN(ip, 0xc0000000u, 24) || IN(ip, 0xc0000200u, 24) ||
		       IN(ip, 0xc6120000u, 15) || IN(ip, 0xc6336400u, 24) || IN(ip, 0xcb007100u, 24);
	}
	__u32 first = bpf_ntohl(v6_of(frame)->saddr.s6_addr32[0]);

	return !IN(first, 0x20000000u, 3) || IN(first, 0x20010db8u, 32) || IN(first, 0x3fff0000u, 20);
}

inline_function int is_blocked(const struct request *request)
{
	struct prefix prefix = { .length = 8 * (sizeof(prefix) - sizeof(prefix.length)) };
	__u32 flags = request->rules->flags;
	const __u32 *number;
	__u64 *count;

	if (!(flags & (BLOCKED_0 | BLOCKED_1)))
		return 0;
	if (request->frame.is_v4) {
		prefix.family = AF_INET;
		prefix.words[0] = request->source.words[3];
	} else {
		prefix.family = AF_INET6;
		__builtin_memcpy(prefix.words, request->source.words, sizeof(prefix.words));
	}
	if (flags & BLOCKED_0)
		number = bpf_map_lookup_elem(&blocked_0, &prefix);
	else
		number = bpf_map_lookup_elem(&blocked_1, &prefix);
	if (!number)
		return 0;
	count = bpf_map_lookup_elem(&block_counts, number);
	if (count)
		*count += 1;
	return 1;
}

/* The connection id of a source, for a time bucket. */
inline_function __u64 id_of(const struct request *request, const struct key *keys, __u32 tag)
{
	__u64 id = hash_address(&keys[tag & TAG], request->source, request->frame.is_v4);

	id = (id & ~(__u64)TAG) | tag;
	return id ? id : TAG + 1;
}

inline_function int is_valid(const struct request *request, __u64 id)
{
	__u32 tag = id & TAG;

	if (!(request->valid >> tag & 1))
		return 0;
	for (__u32 set = 0; set < KEY_SETS; set++) {
		if (set >= request->rules->key_sets)
			break;
		if (id_of(request, request->rules->keys[set], tag) == id)
			return 1;
	}
	return 0;
}

inline_function int refuse(const struct request *request, enum refusal refusal)
{
	request->family->refused[refusal] += 1;
	request->family->refused_bytes += request->frame.len;
	return XDP_DROP;
}

inline_function int pass(const struct request *request)
{
	request->counters->passed += 1;
	return XDP_PASS;
}

/*
 * Where replies are routed, writes the next hop towards the source as the frame's source MAC
 * address, to which the program and the workers send them. 0 where there is none on the interface
 * that the request came from. A lookup takes forwarding on the interface that it starts from: on
 * the loopback device that forwards no packet of another host.
 */
inline_function int find_next_hop(struct xdp_md *context, struct request *request)
{
	const struct frame *frame = &request->frame;
	struct bpf_fib_lookup route = { .ifindex = LOOPBACK };

	if (!(request->rules->flags & NEXT_HOP))
		return 1;
	if (frame->is_v4) {
		route.family = AF_INET;
		route.ipv4_src = v4_of(frame)->daddr;
		route.ipv4_dst = v4_of(frame)->saddr;
		route.tot_len = bpf_ntohs(v4_of(frame)->tot_len);
	} else {
		route.family = AF_INET6;
		__builtin_memcpy(route.ipv6_src, &v6_of(frame)->daddr, sizeof(route.ipv6_src));
		__builtin_memcpy(route.ipv6_dst, &v6_of(frame)->saddr, sizeof(route.ipv6_dst));
	}
	if (bpf_fib_lookup(context, &route, sizeof(route), 0) != BPF_FIB_LKUP_RET_SUCCESS ||
	    route.ifindex != context->ingress_ifindex) {
		request->counters->no_route += 1;
		return 0;
	}
	__builtin_memcpy(frame->ethernet->h_source, route.dmac, ETH_ALEN);
	return 1;
}

/* Leaves a request to the workers. */
inline_function int leave(struct xdp_md *context, struct request *request)
{
	if (to_socket(context) != XDP_REDIRECT || !find_next_hop(context, request))
		return pass(request);
	request->counters->redirected += 1;
	return XDP_REDIRECT;
}

/* Answers a connect of exactly 16 bytes (BEP 15, "Connect"): a verdict, or TO_WORKERS. */
inline_function int connect(struct xdp_md *context, struct request *request, __be32 *payload)
{
	__u64 id;

	if (!(request->rules->flags & ANSWER_CONNECTS) || request->frame.len != REQUEST_LEN)
		return TO_WORKERS;
	if (!checksum_holds(&request->frame, payload, REQUEST_LEN / 2)) {
		request->counters->checksum += 1;
		return XDP_DROP;
	}
	if (!find_next_hop(context, request))
		return pass(request);
	id = bpf_cpu_to_be64(id_of(request, request->rules->keys[0], request->tag));
	payload[0] = bpf_htonl(ACTION_CONNECT);
	payload[1] = payload[3];
	payload[2] = (__u32)id;
	payload[3] = id >> 32;
	make_reply(&request->frame, payload, REQUEST_LEN / 2);
	request->family->answered += 1;
	request->family->answered_bytes += REQUEST_LEN;
	return XDP_TX;
}

/* The checks of intake: a verdict, or TO_WORKERS. */
inline_function int examine(struct xdp_md *context, struct request *request)
{
	struct frame *frame = &request->frame;
	__be32 *payload = (void *)(frame->udp + 1);
	__u64 head;

	if (!frame->udp->source)
		return refuse(request, SOURCE_PORT);
	if (request->rules->flags & REFUSE_BOGONS && is_bogon(frame))
		return refuse(request, BOGON);
	if (is_blocked(request))
		return refuse(request, BLOCKED);
	if (frame->len < REQUEST_LEN)
		return refuse(request, SHORT);
	if ((void *)payload + REQUEST_LEN > frame->end)
		return XDP_PASS; /* never, as parse_ip has checked the length: the verifier needs it */
	head = (__u64)bpf_ntohl(payload[0]) << 32 | bpf_ntohl(payload[1]);
	switch (bpf_ntohl(payload[2])) {
	case ACTION_CONNECT:
		return head == MAGIC ? connect(context, request, payload) :
				       refuse(request, MAGIC_NUMBER);
	case ACTION_ANNOUNCE:
		if (frame->len < ANNOUNCE_LEN)
			return refuse(request, SHORT);
		break;
	case ACTION_SCRAPE:
		break;
	default:
		return refuse(request, ACTION);
	}
	return is_valid(request, head) ? TO_WORKERS : refuse(request, CONNECTION_ID);
}

/* Finds the phase of this moment; 0 where the rules are older than they may be. */
inline_function int find_phase(struct request *request)
{
	__u64 now = bpf_ktime_get_ns();

#pragma unroll
	for (int i = 0; i < PHASES; i++) {
		const struct phase *phase = &request->rules->phases[i];

		if (now < phase->end) {
			request->tag = phase->tag & TAG;
			request->valid = phase->valid;
			return 1;
		}
	}
	return 0;
}

/* Examines a frame of the family `is_v4`, a constant. */
inline_function int serve(struct xdp_md *context, struct request *request, int is_v4)
{
	const struct device *device;
	__u32 zero = 0, number, *buffer;
	int verdict;

	if (!parse_ip(&request->frame, is_v4))
		return XDP_PASS;
	device = find_device(&request->frame, context->ingress_ifindex);
	if (!device)
		return XDP_PASS;
	number = device->counters;
	request->counters = bpf_map_lookup_elem(&counters, &number);
	buffer = bpf_map_lookup_elem(&in_force, &zero);
	if (!request->counters || !buffer)
		return XDP_PASS;
	request->rules = bpf_map_lookup_elem(&rules, buffer);
	if (!request->rules)
		return XDP_PASS;
	if (is_martian(&request->frame)) {
		request->counters->martian += 1;
		return XDP_DROP;
	}
	if (!find_phase(request)) {
		request->counters->stale += 1;
		return XDP_PASS;
	}
	request->source = source_of(&request->frame);
	request->family = is_v4 ? &request->counters->v4 : &request->counters->v6;
	verdict = examine(context, request);
	return verdict == TO_WORKERS ? leave(context, request) : verdict;
}

SEC("xdp")
int onrush(struct xdp_md *context)
{
	struct request request = {};
	void *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;

	switch (parse_ethernet(&request.frame, data, end)) {
	case bpf_htons(ETH_P_IP):
		return serve(context, &request, 1);
	case bpf_htons(ETH_P_IPV6):
		return serve(context, &request, 0);
	default:
		return XDP_PASS;
	}
}

char _license[] SEC("license") = "Dual MIT/GPL";
