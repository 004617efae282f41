# train_gpt2cu on NVIDIA's development image, which has nvcc, cuBLASLt and NCCL with their headers.
#
#   docker build -f dev/docker/cuda.Dockerfile -t train_gpt2cu .
#   docker run --gpus all --ipc=host -v "$PWD/data:/data" -v "$PWD/out:/out" train_gpt2cu \
#       scripts/config/gpt2_124m_80gb.conf --train_data='/data/mine/train*.bin' --val_data='/data/mine/val*.bin' \
#       --out_dir=/out/mine
#   docker run --gpus all --ipc=host --entrypoint dev/gpu_check.sh train_gpt2cu
#
# Another toolkit: --build-arg CUDA=13.0.1-devel-ubuntu24.04. It must be one for the machine's driver, and its
# system must have gcc 12 or newer. Only one GPU's architecture, which builds faster:
# --build-arg MAKEFLAGS="GPUS=-arch=sm_90a".
ARG CUDA=12.6.3-devel-ubuntu24.04
FROM nvidia/cuda:${CUDA}
ARG MAKEFLAGS=
WORKDIR /opt/train_gpt2
# Packages first: a change of the sources does not install them again.
COPY scripts/install_deps.sh scripts/
RUN scripts/install_deps.sh --test && rm -rf /var/lib/apt/lists/*
COPY . .
RUN make -j"$(nproc)" train_gpt2cu test_gpt2cu train_gpt2 data_prep/tokenize
# Containers are root, and see each other's memory only by --ipc=host.
ENV OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
ENTRYPOINT ["./train_gpt2cu"]
CMD ["--help"]
