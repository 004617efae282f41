/* CUDA's vectors, with CUDA's alignment. */
#ifndef HOST_CUDA_VECTOR_TYPES_H
#define HOST_CUDA_VECTOR_TYPES_H

#define HOST_CUDA_VECTORS(name, type)                                                                        \
    struct alignas(2 * sizeof(type)) name##2                                                                 \
    {                                                                                                        \
        type x, y;                                                                                           \
    };                                                                                                       \
    struct name##3                                                                                           \
    {                                                                                                        \
        type x, y, z;                                                                                        \
    };                                                                                                       \
    struct alignas(sizeof(type) > 4 ? 16 : 4 * sizeof(type)) name##4                                         \
    {                                                                                                        \
        type x, y, z, w;                                                                                     \
    };                                                                                                       \
    static inline name##2 make_##name##2(type x, type y)                                                     \
    {                                                                                                        \
        return name##2 {x, y};                                                                               \
    }                                                                                                        \
    static inline name##3 make_##name##3(type x, type y, type z)                                             \
    {                                                                                                        \
        return name##3 {x, y, z};                                                                            \
    }                                                                                                        \
    static inline name##4 make_##name##4(type x, type y, type z, type w)                                     \
    {                                                                                                        \
        return name##4 {x, y, z, w};                                                                         \
    }

HOST_CUDA_VECTORS(char, signed char)
HOST_CUDA_VECTORS(uchar, unsigned char)
HOST_CUDA_VECTORS(short, short)
HOST_CUDA_VECTORS(ushort, unsigned short)
HOST_CUDA_VECTORS(int, int)
HOST_CUDA_VECTORS(uint, unsigned int)
HOST_CUDA_VECTORS(longlong, long long)
HOST_CUDA_VECTORS(ulonglong, unsigned long long)
HOST_CUDA_VECTORS(float, float)
HOST_CUDA_VECTORS(double, double)

struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int x_ = 1, unsigned int y_ = 1, unsigned int z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z)
    {
    }
    constexpr operator uint3() const
    {
        return uint3{x, y, z};
    }
};

#endif
