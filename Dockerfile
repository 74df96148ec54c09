# syntax=docker/dockerfile:1
# onrush in a container image: one static binary, no shell, a numeric user. With BuildKit, builds after the first take the
# compiled dependencies from a cache.
#
#   docker build -t onrush --build-arg COMMIT="$(git rev-parse --short HEAD)" .
#   docker run --network host -v onrush-state:/var/lib/onrush onrush
#   docker compose -f config/compose.yaml up -d
#
# Use the host's network: a bridge rewrites addresses, and the tracker would see one address for all clients. Buffer
# limits are those of the host (`onrush doctor` on the host checks them). The state directory has to belong to user 65534.
#
# No container engine has built or run this file. scripts/package-test lints it (hadolint), links the static binary with
# the same flag, and runs it with the image's files and user in a chroot, and its health check beside it.

FROM rust:1-bookworm AS build
ARG COMMIT=unknown
WORKDIR /src
COPY . .
# glibc is linked statically, as the image has no libraries. The flag applies to the last crate only.
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    ONRUSH_COMMIT="$COMMIT" \
    cargo rustc --release --locked -p onrush --bin onrush -- -C target-feature=+crt-static \
 && mkdir -p /image/var/lib/onrush /image/etc/onrush /image/tmp \
 && cp target/release/onrush /image/ \
 && cp config/onrush.toml /image/etc/onrush/

FROM scratch
ARG COMMIT=unknown
LABEL org.opencontainers.image.title="onrush" \
      org.opencontainers.image.description="BitTorrent tracker over UDP, HTTP and WebSocket" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://example.org/onrush" \
      org.opencontainers.image.revision="$COMMIT"
COPY --from=build --chown=65534:65534 /image /
USER 65534:65534
EXPOSE 6969/udp 6969/tcp
VOLUME ["/var/lib/onrush"]
ENV STATE_DIRECTORY=/var/lib/onrush
# By the control socket in the state directory; the command waits for 5 s at most. A tracker that loads a large snapshot is not ready for seconds.
HEALTHCHECK --interval=10s --timeout=10s --start-period=60s --retries=3 CMD ["/onrush", "ctl", "health"]
ENTRYPOINT ["/onrush"]
CMD ["--config", "/etc/onrush/onrush.toml"]
