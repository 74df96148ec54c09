# onrush in a container image: one static binary, no shell, a numeric user.
#
#   docker build -t onrush .
#   docker run --network host -v onrush-state:/var/lib/onrush onrush
#
# Use the host's network: a bridge rewrites addresses, and the tracker would see one address for all clients. Buffer
# limits are those of the host (`onrush doctor` on the host checks them). The state directory has to belong to user 65534.
# Without a shell the usual HEALTHCHECK does not work; `/onrush ctl health` does.
#
# No container engine has built or run this file. scripts/package-test lints it (hadolint), links the static binary with
# the same flag, and runs it with the image's files and user in a chroot.

FROM rust:1-bookworm AS build
WORKDIR /src
COPY . .
# glibc is linked statically, as the image has no libraries. The flag applies to the last crate only.
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
