"""What cuobjdump 13.1 printed for a small library with two kernels, shortened; encodings stand in for themselves."""

USAGE = """
Fatbin elf code:
================
arch = sm_90a
code version = [1,8]
host = linux
compile_size = 64bit

Resource usage:
 Common:
  GLOBAL:0
 Function _ZN36_GLOBAL__N__cf51e33d_4_t_cu_ab0bdee212scale_kernelILi128EEEvPfi:
  REG:10 STACK:0 SHARED:1536 LOCAL:0 CONSTANT[0]:540 TEXTURE:0 SURFACE:0 SAMPLER:0
 Function _Z11pack_kernelPKfPf:
  REG:8 STACK:0 SHARED:0 LOCAL:0 CONSTANT[0]:544 TEXTURE:0 SURFACE:0 SAMPLER:0

Fatbin ptx code:
================
arch = sm_90
"""

LISTING = """
Fatbin elf code:
================
arch = sm_90a

	code for sm_90a


Fatbin elf code:
================
arch = sm_90a

	code for sm_90a
		Function : _Z11pack_kernelPKfPf
	.headerflags	@"EF_CUDA_64BIT_ADDRESS EF_CUDA_SM90 EF_CUDA_VIRTUAL_SM(EF_CUDA_SM90)"
        /*0000*/                   LDC R1, c[0x0][0x28] ;              /* 0x00000a00ff017b82 */
                                                                       /* 0x000fe20000000800 */
        /*0010*/                   S2R R6, SR_TID.X ;                  /* 0x0000000000067919 */
                                                                       /* 0x000e2e0000002100 */
        /*0020*/               @P0 EXIT ;                              /* 0x000000000000094d */
                                                                       /* 0x000fea0003800000 */
        /*0030*/                   LDG.E.128.CONSTANT R4, desc[UR6][R2.64] ;   /* 0x0000000602007981 */
                                                                       /* 0x000ea2000c1e1900 */
        /*0040*/                   LDS R8, [R6+0x10] ;                 /* 0x0000000602007981 */
                                                                       /* 0x000ea2000c1e1900 */
        /*0050*/                   FFMA R9, R8, R4, R9 ;               /* 0x0000000602007981 */
                                                                       /* 0x000ea2000c1e1900 */
        /*0060*/              @!UP0 HMMA.1688.F32.TF32 R4, R8, R10, R4 ;      /* 0x0000000602007981 */
                                                                       /* 0x000ea2000c1e1900 */
        /*0070*/               @P1 BRA 0x30 ;                          /* 0x0000000602007981 */
                                                                       /* 0x000ea2000c1e1900 */
        /*0080*/                   STG.E.64 desc[UR6][R2.64], R4 ;     /* 0x0000000602007981 */
                                                                       /* 0x000ea2000c1e1900 */
        /*0090*/                   EXIT ;                              /* 0x000000000000094d */
                                                                       /* 0x000fea0003800000 */
        /*00a0*/                   BRA 0xa0;                           /* 0xfffffffc00fc7947 */
                                                                       /* 0x000fc0000383ffff */
        /*00b0*/                   NOP;                                /* 0x0000000000007918 */
                                                                       /* 0x000fc00000000000 */
		..........
"""
