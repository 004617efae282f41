# train_gpt2 and data_prep/tokenize on a bare Debian.
#
#   docker build -f dev/docker/cpu.Dockerfile -t train_gpt2 .
#   docker run -v "$PWD/data:/data" -v "$PWD/out:/out" train_gpt2 --train_data=/data/train.bin \
#       --val_data=/data/val.bin --out_dir=/out/mine
#   docker run -v "$PWD:/here" --entrypoint data_prep/tokenize train_gpt2 -o /here/data /here/text.txt
#   docker run --entrypoint scripts/test.sh train_gpt2
#
# --build-arg DEBIAN=trixie-slim has gcc 14 and Open MPI 5.
ARG DEBIAN=bookworm-slim
FROM debian:${DEBIAN}
WORKDIR /opt/train_gpt2
COPY scripts/install_deps.sh scripts/
RUN scripts/install_deps.sh --test && rm -rf /var/lib/apt/lists/*
COPY . .
RUN make -j"$(nproc)"
ENV OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
ENTRYPOINT ["./train_gpt2"]
CMD ["--help"]
