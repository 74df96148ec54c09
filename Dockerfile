# onrush in an image of its own: one static binary, no shell, no user but a number.
#
#   docker build -t onrush .
#   docker run --network host -v onrush-state:/var/lib/onrush onrush
#
# Use the host's network: a bridge rewrites addresses, and a tracker that sees one address for all clients is of no
# use. Limits of buffers are the host's (`onrush doctor`, run on the host, says which). The state directory has to
# belong to user 65534. There is no shell for a HEALTHCHECK line of the usual kind: `/onrush ctl health` is one, for
# whoever runs the container to call, where the HTTP side is on.
#
# How this file is checked: no container engine has built or run it. scripts/package-test holds it to a linter (hadolint), links
# the static binary with the same flag, and runs it with the image's files and user in a chroot.

FROM rust:1-bookworm AS build
WORKDIR /src
COPY . .
# glibc linked in, as nothing else is in the image. The flag is for the last step alone: what it links is the same.
RUN cargo rustc --release --locked -p onrush --bin onrush -- -C target-feature=+crt-static \
 && mkdir -p /image/var/lib/onrush /image/etc/onrush /image/tmp \
 && cp target/release/onrush /image/ \
 && cp config/onrush.toml /image/etc/onrush/

FROM scratch
COPY --from=build --chown=65534:65534 /image /
USER 65534:65534
EXPOSE 6969/udp
VOLUME ["/var/lib/onrush"]
ENV STATE_DIRECTORY=/var/lib/onrush
ENTRYPOINT ["/onrush"]
CMD ["--config", "/etc/onrush/onrush.toml"]
