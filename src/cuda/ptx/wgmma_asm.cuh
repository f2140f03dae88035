// The inline assembly of wgmma.mma_async, device only. One macro writes one instruction; the
// operand lists differ only in the number of accumulator registers, which the preprocessor cannot
// count, hence the strings. (cute/arch has the same instructions in 3.7 MB of headers; these
// compile in a tenth of a second.)
#pragma once

#include "fragment.cuh"

#define VC_D8(c, i)                                                                          \
  "+" c(d.r[i]), "+" c(d.r[i + 1]), "+" c(d.r[i + 2]), "+" c(d.r[i + 3]), "+" c(d.r[i + 4]), \
      "+" c(d.r[i + 5]), "+" c(d.r[i + 6]), "+" c(d.r[i + 7])
#define VC_D4(c, i) "+" c(d.r[i]), "+" c(d.r[i + 1]), "+" c(d.r[i + 2]), "+" c(d.r[i + 3])
#define VC_D16(c, i) VC_D8(c, i), VC_D8(c, i + 8)
#define VC_D32(c, i) VC_D16(c, i), VC_D16(c, i + 16)
#define VC_D36(c, i) VC_D32(c, i), VC_D4(c, i + 32)
#define VC_D64(c, i) VC_D32(c, i), VC_D32(c, i + 32)
#define VC_D68(c, i) VC_D64(c, i), VC_D4(c, i + 64)

// Register lists, and the placeholders that follow them: A and B descriptors | four A registers and
// B | scale-d.
#define VC_L16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define VC_L32 VC_L16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define VC_L36 VC_L32 ",%32,%33,%34,%35"
#define VC_L64                                                                                \
  VC_L36                                                                                      \
  ",%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57," \
  "%58,%59,%60,%61,%62,%63"
#define VC_L68 VC_L64 ",%64,%65,%66,%67"
#define VC_SS16 "%16, %17"
#define VC_SS32 "%32, %33"
#define VC_SS36 "%36, %37"
#define VC_SS64 "%64, %65"
#define VC_SS68 "%68, %69"
#define VC_SSP16 "%18"
#define VC_SSP32 "%34"
#define VC_SSP36 "%38"
#define VC_SSP64 "%66"
#define VC_SSP68 "%70"
#define VC_RS16 "{%16,%17,%18,%19}, %20"
#define VC_RS32 "{%32,%33,%34,%35}, %36"
#define VC_RS36 "{%36,%37,%38,%39}, %40"
#define VC_RS64 "{%64,%65,%66,%67}, %68"
#define VC_RS68 "{%68,%69,%70,%71}, %72"
#define VC_RSP16 "%21"
#define VC_RSP32 "%37"
#define VC_RSP36 "%41"
#define VC_RSP64 "%69"
#define VC_RSP68 "%73"

// regs: registers of d; op: shape and types; tail: the immediates after the scale-d predicate.
#define VC_WGMMA_SS(regs, c, op, tail)                                                    \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " VC_SSP##regs                           \
               ", 0;\nwgmma.mma_async.sync.aligned." op " {" VC_L##regs "}, " VC_SS##regs \
               ", p" tail ";\n}"                                                          \
               : VC_D##regs(c, 0)                                                         \
               : "l"(a.bits), "l"(b.bits), "r"(static_cast<uint32_t>(accumulate)))
#define VC_WGMMA_RS(regs, c, op, tail)                                                    \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " VC_RSP##regs                           \
               ", 0;\nwgmma.mma_async.sync.aligned." op " {" VC_L##regs "}, " VC_RS##regs \
               ", p" tail ";\n}"                                                          \
               : VC_D##regs(c, 0)                                                         \
               : "r"(a.r[4 * step]), "r"(a.r[4 * step + 1]), "r"(a.r[4 * step + 2]),      \
                 "r"(a.r[4 * step + 3]), "l"(b.bits), "r"(static_cast<uint32_t>(accumulate)))
