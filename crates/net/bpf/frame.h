/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Frames of UDP over Ethernet: where their parts are, and their checksums.
 *
 * Plain frames are: Ethernet, at most one 802.1Q tag, IPv4 without options or IPv6 without
 * extension headers, UDP. No fragments, no link-local addresses, no MAC address of a group as the
 * source, at most MAX_FRAME bytes. Programs pass all others to the kernel.
 */
#ifndef ONRUSH_FRAME_H
#define ONRUSH_FRAME_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define MAX_FRAME 1700
#define TTL 64

#define inline_function static __attribute__((always_inline)) inline

struct tag {
	__be16 control;
	__be16 protocol;
};

/* An address of either family; IPv4 as IPv4-mapped (RFC 4291, section 2.5.5.2). */
struct address {
	__u32 words[4];
};

/*
 * The parts of a plain frame. Pointers are into the packet. Programs examine the families in two
 * copies of the same code, in which `is_v4` is a constant.
 */
struct frame {
	void *end;
	struct ethhdr *ethernet;
	void *ip;
	struct udphdr *udp;
	int is_v4;
	__u16 vlan; /* 0 without a tag */
	__u16 len;  /* bytes of the payload, by the length of IP: a short frame is padded */
};

inline_function struct iphdr *v4_of(const struct frame *frame)
{
	return frame->ip;
}

inline_function struct ipv6hdr *v6_of(const struct frame *frame)
{
	return frame->ip;
}

inline_function struct address mapped(__be32 v4)
{
	return (struct address){ { 0, 0, bpf_htonl(0xffff), v4 } };
}

inline_function struct address source_of(const struct frame *frame)
{
	struct address address;

	if (frame->is_v4)
		return mapped(v4_of(frame)->saddr);
	__builtin_memcpy(&address, &v6_of(frame)->saddr, sizeof(address));
	return address;
}

inline_function struct address destination_of(const struct frame *frame)
{
	struct address address;

	if (frame->is_v4)
		return mapped(v4_of(frame)->daddr);
	__builtin_memcpy(&address, &v6_of(frame)->daddr, sizeof(address));
	return address;
}

inline_function int is_mac(const __u8 *mac, const __u8 *other)
{
	const __u16 *a = (const __u16 *)mac, *b = (const __u16 *)other;

	return a[0] == b[0] && a[1] == b[1] && a[2] == b[2];
}

/* The sum of 16-bit words, folded (RFC 1071). */
inline_function __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* The sum of `halves` 16-bit words, a constant. */
inline_function __u64 sum_of(const void *start, int halves)
{
	const __u16 *words = start;
	__u64 sum = 0;

#pragma unroll
	for (int i = 0; i < halves; i++)
		sum += words[i];
	return sum;
}

/* The sum of the pseudo header (RFC 768; RFC 8200, section 8.1), which swapped addresses keep. */
inline_function __u64 pseudo_header(const struct frame *frame)
{
	__u64 sum = frame->udp->len + bpf_htons(IPPROTO_UDP);

	if (frame->is_v4)
		return sum + sum_of(&v4_of(frame)->saddr, 4);
	return sum + sum_of(&v6_of(frame)->saddr, 16);
}

inline_function int is_link_local_v4(__be32 address)
{
	return (address & bpf_htonl(0xffff0000)) == bpf_htonl(0xa9fe0000);
}

inline_function int is_link_local_v6(const struct in6_addr *address)
{
	return (address->s6_addr32[0] & bpf_htonl(0xffc00000)) == bpf_htonl(0xfe800000);
}

/* Finds the UDP header behind the IPv4 header; 0 where the frame is not a plain one. */
inline_function int parse_v4(struct frame *frame)
{
	struct iphdr *ip = frame->ip;

	if ((void *)(ip + 1) > frame->end)
		return 0;
	if (ip->version != 4 || ip->ihl != 5 || ip->protocol != IPPROTO_UDP)
		return 0;
	/* A fragment: it has an offset, or more fragments follow. */
	if (ip->frag_off & bpf_htons(0x3fff))
		return 0;
	if (is_link_local_v4(ip->saddr) || is_link_local_v4(ip->daddr))
		return 0;
	/* With a wrong sum the kernel drops and counts it. */
	if (fold(sum_of(ip, 10)) != 0xffff)
		return 0;
	frame->udp = (void *)(ip + 1);
	frame->len = bpf_ntohs(ip->tot_len) - sizeof(*ip);
	return bpf_ntohs(ip->tot_len) >= sizeof(*ip);
}

/* The same behind the IPv6 header. */
inline_function int parse_v6(struct frame *frame)
{
	struct ipv6hdr *ip = frame->ip;

	if ((void *)(ip + 1) > frame->end)
		return 0;
	if (ip->version != 6 || ip->nexthdr != IPPROTO_UDP)
		return 0;
	if (is_link_local_v6(&ip->saddr) || is_link_local_v6(&ip->daddr))
		return 0;
	frame->udp = (void *)(ip + 1);
	frame->len = bpf_ntohs(ip->payload_len);
	return 1;
}

/* Finds the IP header; returns its protocol in Ethernet, or 0 where the frame is not a plain one. */
inline_function __be16 parse_ethernet(struct frame *frame, void *data, void *end)
{
	struct ethhdr *ethernet = data;
	struct tag *tag = (void *)(ethernet + 1);

	if ((void *)tag > end || end - data > MAX_FRAME)
		return 0;
	/* A reply would go to the whole group. */
	if (ethernet->h_source[0] & 1)
		return 0;
	*frame = (struct frame){ .end = end, .ethernet = ethernet, .ip = tag };
	if (ethernet->h_proto != bpf_htons(ETH_P_8021Q))
		return ethernet->h_proto;
	if ((void *)(tag + 1) > end)
		return 0;
	frame->ip = tag + 1;
	frame->vlan = bpf_ntohs(tag->control) & 0xfff;
	/* Tag 0 is a priority without a VLAN. */
	return frame->vlan ? tag->protocol : 0;
}

/* Finds the payload of a frame of the family `is_v4`; 0 where the frame is not a plain one. */
inline_function int parse_ip(struct frame *frame, int is_v4)
{
	frame->is_v4 = is_v4;
	if (!(is_v4 ? parse_v4(frame) : parse_v6(frame)))
		return 0;
	if ((void *)(frame->udp + 1) > frame->end || frame->len < sizeof(struct udphdr))
		return 0;
	/* The length of IP is that of UDP, and what it covers is in the frame. */
	if (bpf_ntohs(frame->udp->len) != frame->len ||
	    (void *)frame->udp + frame->len > frame->end)
		return 0;
	frame->len -= sizeof(struct udphdr);
	return 1;
}

/*
 * Whether the checksum of a payload of 2 * `halves` bytes is right, absent (IPv4), or the pseudo
 * header's sum, as a sender on this host leaves it for its device (veth).
 */
inline_function int checksum_holds(const struct frame *frame, const void *payload, int halves)
{
	__u64 pseudo = pseudo_header(frame);
	__u16 check = frame->udp->check;

	if (!check)
		return frame->is_v4;
	if (check == fold(pseudo))
		return 1;
	return fold(pseudo + sum_of(frame->udp, 4) + sum_of(payload, halves)) == 0xffff;
}

/* Swaps the addresses of Ethernet, IP and UDP. */
inline_function void swap_addresses(struct frame *frame)
{
	__u16 *to = (__u16 *)frame->ethernet->h_dest, *from = (__u16 *)frame->ethernet->h_source;
	__be16 port = frame->udp->source;

#pragma unroll
	for (int i = 0; i < ETH_ALEN / 2; i++) {
		__u16 word = to[i];

		to[i] = from[i];
		from[i] = word;
	}
	frame->udp->source = frame->udp->dest;
	frame->udp->dest = port;
	if (frame->is_v4) {
		__be32 address = v4_of(frame)->saddr;

		v4_of(frame)->saddr = v4_of(frame)->daddr;
		v4_of(frame)->daddr = address;
	} else {
		struct in6_addr address = v6_of(frame)->saddr;

		v6_of(frame)->saddr = v6_of(frame)->daddr;
		v6_of(frame)->daddr = address;
	}
}

/*
 * Turns a request into the headers of a reply of the same length, with its payload of 2 * `halves`
 * bytes in place: addresses swapped, hop limit, checksums. IPv4 leaves with DF and identification 0
 * (RFC 6864, section 4.1).
 */
inline_function void make_reply(struct frame *frame, const void *payload, int halves)
{
	__u16 check;

	swap_addresses(frame);
	if (frame->is_v4) {
		struct iphdr *ip = v4_of(frame);

		ip->tos = 0;
		ip->id = 0;
		ip->frag_off = bpf_htons(0x4000);
		ip->ttl = TTL;
		ip->check = 0;
		ip->check = ~fold(sum_of(ip, 10));
	} else {
		/* Version 6, no traffic class, no flow label. */
		*(__be32 *)frame->ip = bpf_htonl(0x60000000);
		v6_of(frame)->hop_limit = TTL;
	}
	frame->udp->check = 0;
	check = ~fold(pseudo_header(frame) + sum_of(frame->udp, 4) + sum_of(payload, halves));
	/* 0 would mean that there is none (RFC 768). */
	frame->udp->check = check ? check : 0xffff;
}

#endif
