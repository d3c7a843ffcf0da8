"""What compute-sanitizer writes, as its manual (CUDA 13) and reports of its users show it; none of it was made here."""

CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
NO_HAZARDS = "========= COMPUTE-SANITIZER\n========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"

OUT_OF_BOUNDS = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at causal_conv_kernel(const float *, const float *, float *, int)+0x160 in cuda.cu:17
=========     by thread (0,0,0) in block (3,0,0)
=========     Address 0x7f6510c00200 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f6510c00000 of size 512 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: launch_causal_conv [0x1234] in extension.so
=========
========= Invalid __global__ read of size 4 bytes
=========     at causal_conv_kernel(const float *, const float *, float *, int)+0x160 in cuda.cu:17
=========     by thread (1,0,0) in block (3,0,0)
=========     Address 0x7f6510c00204 is out of bounds
=========     and is 5 bytes after the nearest allocation at 0x7f6510c00000 of size 512 bytes
=========
========= Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure" on CUDA API call.
=========     Saved host backtrace up to driver entry point at error
=========
========= Target application returned an error
========= ERROR SUMMARY: 3 errors
"""

# As cuda-memcheck's successor wrote it until 2021: the offset first, then file, line and function.
EARLIER_SPELLING = """\
========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 4 bytes
=========     at 0x250 in myapp.cu:41:vector_add(int*)
=========     by thread (16,0,0) in block (0,0,0)
=========     Address 0x7f3c7ec000fc
=========
========= ERROR SUMMARY: 1 error
"""

MISALIGNED = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at unaligned_kernel():0x160 in memcheck_demo.cu:6
=========     by thread (0,0,0) in block (0,0,0)
=========     Address 0x7f6510c00001 is misaligned
=========
========= ERROR SUMMARY: 1 error
"""

RACE = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at void Kernel<(int)256>(const int *, int, int *)+0xa60
=========     and Read access at void Kernel<(int)256>(const int *, int, int *)+0xcc0 [28 hazards]
=========     and Read access at void Kernel<(int)256>(const int *, int, int *)+0xcd0 [4 hazards]
=========
========= Warning: Race reported between Read access at RAW()+0xf0 in raceGroupBasic.cu:40
=========     and Write access at RAW()+0x280 in raceGroupBasic.cu:46 [4 hazards]
=========
========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)
"""

RACE_WARNING = """\
========= COMPUTE-SANITIZER
========= Warning: Race reported between Write access at RAW()+0xf0 in raceGroupBasic.cu:40
=========     and Read access at RAW()+0x280 in raceGroupBasic.cu:46 [4 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)
"""

PYTORCHS_OWN = """\
========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 4 bytes
=========     at void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<float>>(int, T2)+0x1a0
=========     by thread (5,0,0) in block (0,0,0)
=========     Address 0x7f3c7ec000fc
=========
========= Host API memory access error at host access to 0x7f7fcdc01200 of size 400 bytes
=========     Uninitialized access at 0x7f7fcdc01300 on access by cudaMemcpy source
=========     Saved host backtrace up to driver entry point at error
=========
========= ERROR SUMMARY: 2 errors
"""

CALLED_FUNCTION = """\
========= COMPUTE-SANITIZER
========= Invalid __shared__ write of size 4 bytes
=========     at cub::detail::store(float *, int)+0x40
=========     by thread (2,0,0) in block (0,0,0)
=========     Address 0x400 is out of bounds
=========         Device Frame: causal_conv_kernel(const float *, float *)+0x90 in cuda.cu:30
=========
========= ERROR SUMMARY: 1 error
"""

TOO_MANY = """\
========= COMPUTE-SANITIZER
========= ERROR SUMMARY: 257 errors
========= ERROR SUMMARY: 157 errors were not printed. Use --print-limit option to adjust the number of printed errors
"""

BROKEN_TOOL = """\
========= COMPUTE-SANITIZER
========= Internal Sanitizer Error: The Sanitizer encountered an error when initializing
=========
========= ERROR SUMMARY: 1 error
"""

BARRIERS_UNTRACKED = """\
========= COMPUTE-SANITIZER
========= Warning: Detected overflow of tracked cuda::barrier structures. Results might be incorrect. Try using \
--num-cuda-barriers to fix the issue
========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)
"""
