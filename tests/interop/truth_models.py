"""Architectures for orders.py: small, with random weights. ARCHITECTURES is a list of (name, function, has twin branches): branches are
modules beside each other, no entries of one list, whose parameters have equal shapes. Libraries that are missing leave theirs out."""
import importlib.util
import os
import re

import torch

nn = torch.nn


def lend_torchvision_its_operators():
    """A torchvision of another build than torch's (there is none for the CPU alone) lacks its kernels, and then cannot be imported; its
    models need none of them."""
    spec = importlib.util.find_spec("torchvision")
    path = spec and spec.origin and os.path.join(os.path.dirname(spec.origin), "_meta_registrations.py")
    if not path or not os.path.exists(path) or torch.cuda.is_available():
        return
    with open(path, encoding="utf-8") as f:
        text = f.read()
    for op in sorted(set(re.findall(r"torchvision::(\w+)", text) + re.findall(r'register_meta\("(\w+)"', text))):
        try:
            torch.library.define(f"torchvision::{op}", "(Tensor a) -> Tensor")
        except RuntimeError:
            pass               # it has them


lend_torchvision_its_operators()

ARCHITECTURES = []
MISSING = []


def arch(name, twins=False):
    def add(make):
        ARCHITECTURES.append((name, make, twins))
        return make
    return add


def mlp(*sizes, bias=True):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b, bias=bias), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Of(nn.Module):
    """A module of these, in this order."""

    def __init__(self, **modules):
        super().__init__()
        for name, m in modules.items():
            setattr(self, name, m)


class Block(nn.Module):
    def __init__(self, d, cross=False):
        super().__init__()
        self.norm1 = nn.LayerNorm(d)
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(d, d) for _ in range(4))
        if cross:
            self.cross_attn = nn.MultiheadAttention(d, 2)
            self.norm_cross = nn.LayerNorm(d)
        self.norm2 = nn.LayerNorm(d)
        self.fc1 = nn.Linear(d, 4 * d)
        self.fc2 = nn.Linear(4 * d, d)


def generator(c=6):
    return nn.Sequential(nn.Conv2d(3, c, 3), nn.InstanceNorm2d(c, affine=True), nn.Conv2d(c, c, 3), nn.ConvTranspose2d(c, 3, 3))


def discriminator(c=6):
    return nn.Sequential(nn.Conv2d(3, c, 4), nn.Conv2d(c, 1, 4))


@arch("mlp")
def _():
    return mlp(8, 16, 16, 4)


@arch("mlp of one width")
def _():
    return mlp(8, 8, 8, 8)


@arch("mlp without biases")
def _():
    return mlp(8, 8, 8, 8, 3, bias=False)


@arch("fc1 fc2 fc3")
def _():
    return Of(fc1=nn.Linear(8, 8), fc2=nn.Linear(8, 8), fc3=nn.Linear(8, 3))


@arch("body and head of one shape", True)
def _():
    return Of(features=mlp(8, 8, 8, 8), head=nn.Linear(8, 8))


@arch("body and head")
def _():
    return Of(features=mlp(5, 8, 8), head=nn.Linear(8, 3))


@arch("autoencoder", True)
def _():
    return Of(encoder=mlp(8, 8, 8), decoder=mlp(8, 8, 8))


@arch("two linear heads", True)
def _():
    return Of(body=mlp(5, 8), mu=nn.Linear(8, 4), log_std=nn.Linear(8, 4))


@arch("gan")
def _():
    return Of(generator=generator(), discriminator=discriminator())


@arch("cyclegan generators", True)
def _():
    return Of(G_AB=generator(), G_BA=generator())


@arch("cyclegan", True)
def _():
    return Of(G_AB=generator(), G_BA=generator(), D_A=discriminator(), D_B=discriminator())


@arch("cyclegan inside", True)
def _():
    return Of(nets=Of(netG_A=generator(), netG_B=generator()), temperature=nn.Linear(1, 1))


@arch("siamese towers", True)
def _():
    return Of(left=mlp(6, 12, 6), right=mlp(6, 12, 6), top=nn.Linear(12, 2))


@arch("two towers, embeddings", True)
def _():
    return Of(user=nn.Embedding(20, 6), item=nn.Embedding(20, 6), score=mlp(12, 6, 1))


class Clip(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.logit_scale = nn.Parameter(torch.ones(()))
        self.text = Of(embed=nn.Embedding(a, 8), layers=nn.ModuleList(Block(8) for _ in range(2)))
        self.visual = Of(embed=nn.Embedding(b, 8), layers=nn.ModuleList(Block(8) for _ in range(2)))


@arch("clip of equal towers", True)
def _():
    return Clip(10, 10)


@arch("clip")
def _():
    return Clip(10, 12)


@arch("byol", True)
def _():
    m = Of(online=mlp(6, 12, 6), target=mlp(6, 12, 6), predictor=mlp(6, 6))
    for p in m.target.parameters():
        p.requires_grad_(False)
    return m


@arch("actor critic")
def _():
    return Of(body=mlp(5, 16), actor=nn.Linear(16, 3), critic=nn.Linear(16, 1))


@arch("sac", True)
def _():
    return Of(actor=mlp(5, 16, 4), q1=mlp(7, 16, 1), q2=mlp(7, 16, 1))


@arch("td3 of lists")
def _():
    return Of(actor=mlp(5, 16, 4), critics=nn.ModuleList([mlp(7, 16, 1), mlp(7, 16, 1)]))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(17, 8)
        self.h = nn.ModuleList(Block(8) for _ in range(3))
        self.ln_f = nn.LayerNorm(8)
        self.lm_head = nn.Linear(8, 17, bias=False)
        self.lm_head.weight = self.wte.weight


@arch("tied lm")
def _():
    return Tied()


@arch("tied lm inside")
def _():
    return Of(model=Tied())


@arch("frozen embedding")
def _():
    m = Tied()
    m.wte.weight.requires_grad_(False)
    return m


@arch("frozen layers")
def _():
    m = Of(embed=nn.Embedding(11, 8), layers=nn.ModuleList(Block(8) for _ in range(3)), head=nn.Linear(8, 5))
    for p in m.layers[0].parameters():
        p.requires_grad_(False)
    return m


class Moe(nn.Module):
    def __init__(self, fused):
        super().__init__()
        self.gate = nn.Linear(8, 4, bias=False)
        if fused:
            self.gate_up_proj = nn.Parameter(torch.randn(4, 8, 32))
            self.down_proj = nn.Parameter(torch.randn(4, 16, 8))
        else:
            self.experts = nn.ModuleList(Of(w1=nn.Linear(8, 16, bias=False), w2=nn.Linear(16, 8, bias=False), w3=nn.Linear(8, 16, bias=False))
                                         for _ in range(4))


@arch("moe")
def _():
    return Of(embed=nn.Embedding(11, 8), layers=nn.ModuleList(Of(attn=nn.MultiheadAttention(8, 2), norm=nn.LayerNorm(8), mlp=Moe(False))
                                                              for _ in range(2)))


@arch("fused moe")
def _():
    return Of(embed=nn.Embedding(11, 8), layers=nn.ModuleList(Of(attn=nn.MultiheadAttention(8, 2), norm=nn.LayerNorm(8), mlp=Moe(True))
                                                              for _ in range(2)))


def conv(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3), nn.BatchNorm2d(b), nn.ReLU(), nn.Conv2d(b, b, 3), nn.BatchNorm2d(b))


@arch("u-net")
def _():
    return Of(inc=conv(3, 4), down1=conv(4, 8), down2=conv(8, 16), up1=conv(24, 8), up2=conv(12, 4), outc=nn.Conv2d(4, 2, 1))


@arch("u-net of one width", True)
def _():
    return Of(inc=conv(3, 6), down1=conv(6, 6), down2=conv(6, 6), up1=conv(12, 6), up2=conv(12, 6), outc=nn.Conv2d(6, 2, 1))


@arch("encoder decoder")
def _():
    return Of(embed=nn.Embedding(13, 8), encoder=nn.ModuleList(Block(8) for _ in range(2)),
              decoder=nn.ModuleList(Block(8, cross=True) for _ in range(2)), out=nn.Linear(8, 13))


@arch("nn.Transformer")
def _():
    return nn.Transformer(8, 2, 2, 2, 16)


@arch("norms everywhere")
def _():
    return Of(stem=nn.Conv2d(3, 8, 3), bn=nn.BatchNorm2d(8), blocks=nn.ModuleList(nn.Sequential(nn.GroupNorm(2, 8), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8),
              nn.PReLU(8)) for _ in range(3)), norm=nn.LayerNorm(8), fc=nn.Linear(8, 3))


@arch("lstm")
def _():
    return Of(embed=nn.Embedding(9, 8), rnn=nn.LSTM(8, 8, 2, bidirectional=True), out=nn.Linear(16, 9))


class Vit(nn.Module):
    def __init__(self):
        super().__init__()
        self.cls_token = nn.Parameter(torch.randn(1, 1, 8))
        self.pos_embed = nn.Parameter(torch.randn(1, 5, 8))
        self.patch_embed = nn.Conv2d(3, 8, 4)
        self.blocks = nn.ModuleList(Scaled(8) for _ in range(3))
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 4)


class Scaled(Block):
    def __init__(self, d):
        super().__init__(d)
        self.gamma_1 = nn.Parameter(torch.ones(d))
        self.gamma_2 = nn.Parameter(torch.ones(d))


@arch("vit with layer scale")
def _():
    return Vit()


@arch("parallel experts by name", True)
def _():
    return Of(shared=nn.Linear(6, 8), math=mlp(8, 8, 8), code=mlp(8, 8, 8), text=mlp(8, 8, 8), out=nn.Linear(8, 2))


@arch("named layers")
def _():
    return Of(stem=nn.Linear(4, 8), trunk=Of(**{f"block2-{i}": mlp(8, 8, 8) for i in range(1, 4)}), out=nn.Linear(8, 2))


# ---- transformers

def transformers_models():
    import transformers as t
    small = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, vocab_size=37, max_position_embeddings=24)
    kv = dict(small, num_key_value_heads=1, head_dim=8)
    vision = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=8, patch_size=4)
    dec = dict(d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=32,
               decoder_ffn_dim=32, vocab_size=37, max_position_embeddings=24)
    special = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)
    return {
        "gpt2": lambda: t.GPT2LMHeadModel(t.GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=37, n_positions=24)),
        "llama": lambda: t.LlamaForCausalLM(t.LlamaConfig(**kv)),
        "llama for classes": lambda: t.LlamaForSequenceClassification(t.LlamaConfig(**kv, num_labels=3)),
        "mistral": lambda: t.MistralForCausalLM(t.MistralConfig(**kv)),
        "mixtral": lambda: t.MixtralForCausalLM(t.MixtralConfig(**kv, num_local_experts=3)),
        "qwen2": lambda: t.Qwen2ForCausalLM(t.Qwen2Config(**dict(small, num_key_value_heads=1))),
        "qwen3": lambda: t.Qwen3ForCausalLM(t.Qwen3Config(**kv)),
        "gemma": lambda: t.GemmaForCausalLM(t.GemmaConfig(**kv)),
        "gemma2": lambda: t.Gemma2ForCausalLM(t.Gemma2Config(**kv)),
        "phi": lambda: t.PhiForCausalLM(t.PhiConfig(**small)),
        "gpt_neox": lambda: t.GPTNeoXForCausalLM(t.GPTNeoXConfig(**small)),
        "gptj": lambda: t.GPTJForCausalLM(t.GPTJConfig(n_embd=16, n_layer=2, n_head=2, vocab_size=37, n_positions=24, rotary_dim=4)),
        "falcon": lambda: t.FalconForCausalLM(t.FalconConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, vocab_size=37)),
        "bloom": lambda: t.BloomForCausalLM(t.BloomConfig(hidden_size=16, n_layer=2, n_head=2, vocab_size=37)),
        "opt": lambda: t.OPTForCausalLM(t.OPTConfig(hidden_size=16, ffn_dim=32, num_hidden_layers=2, num_attention_heads=2, vocab_size=37,
                                                    max_position_embeddings=24, word_embed_proj_dim=16)),
        "bert": lambda: t.BertForSequenceClassification(t.BertConfig(**small)),
        "bert mlm": lambda: t.BertForMaskedLM(t.BertConfig(**small)),
        "roberta": lambda: t.RobertaForSequenceClassification(t.RobertaConfig(**small)),
        "distilbert": lambda: t.DistilBertForSequenceClassification(t.DistilBertConfig(dim=16, hidden_dim=32, n_layers=2, n_heads=2, vocab_size=37,
                                                                                      max_position_embeddings=24)),
        "albert": lambda: t.AlbertForSequenceClassification(t.AlbertConfig(**small, embedding_size=8)),
        "electra": lambda: t.ElectraForSequenceClassification(t.ElectraConfig(**small, embedding_size=8)),
        "deberta-v2": lambda: t.DebertaV2ForSequenceClassification(t.DebertaV2Config(**small)),
        "mpnet": lambda: t.MPNetModel(t.MPNetConfig(**small)),
        "t5": lambda: t.T5ForConditionalGeneration(t.T5Config(d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, vocab_size=37)),
        "bart": lambda: t.BartForConditionalGeneration(t.BartConfig(**dec, **special)),
        "marian": lambda: t.MarianMTModel(t.MarianConfig(**dec, pad_token_id=0, decoder_start_token_id=0)),
        "whisper": lambda: t.WhisperForConditionalGeneration(t.WhisperConfig(**{k: v for k, v in dec.items() if k != "max_position_embeddings"},
                                                             num_mel_bins=8, max_source_positions=20, max_target_positions=16, **special)),
        "vit": lambda: t.ViTForImageClassification(t.ViTConfig(**vision)),
        "deit": lambda: t.DeiTForImageClassification(t.DeiTConfig(**vision)),
        "beit": lambda: t.BeitForImageClassification(t.BeitConfig(**vision)),
        "dinov2": lambda: t.Dinov2ForImageClassification(t.Dinov2Config(**{k: v for k, v in vision.items() if k != "intermediate_size"})),
        "swin": lambda: t.SwinForImageClassification(t.SwinConfig(embed_dim=8, depths=[1, 2], num_heads=[2, 2], image_size=16, patch_size=2, window_size=2)),
        "convnext": lambda: t.ConvNextForImageClassification(t.ConvNextConfig(hidden_sizes=[4, 8, 8, 8], depths=[1, 1, 2, 1])),
        "resnet of transformers": lambda: t.ResNetForImageClassification(t.ResNetConfig(embedding_size=4, hidden_sizes=[4, 8, 8, 16], depths=[1, 1, 2, 1])),
        "segformer": lambda: t.SegformerForSemanticSegmentation(t.SegformerConfig(hidden_sizes=[4, 8, 8, 16], depths=[1, 1, 1, 1], num_attention_heads=[1, 1, 2, 2],
                                                                                  decoder_hidden_size=8)),
        "clip of transformers": lambda: t.CLIPModel(t.CLIPConfig(text_config={**small, "projection_dim": 8}, vision_config={**vision, "projection_dim": 8},
                                                                 projection_dim=8)),
        "wav2vec2": lambda: t.Wav2Vec2ForCTC(t.Wav2Vec2Config(**{k: v for k, v in small.items() if k != "max_position_embeddings"}, conv_dim=(8, 8),
                                             conv_stride=(2, 2), conv_kernel=(3, 3), num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=2)),
        "mamba": lambda: t.MambaForCausalLM(t.MambaConfig(hidden_size=16, num_hidden_layers=2, vocab_size=37, state_size=4)),
    }


def peft_models():
    import peft
    import transformers as t

    def lora(**more):
        base = t.GPT2LMHeadModel(t.GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=37, n_positions=24))
        return peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=["c_attn", "c_proj"], **more))

    def llama():
        base = t.LlamaForCausalLM(t.LlamaConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, intermediate_size=32,
                                                vocab_size=37))
        return peft.get_peft_model(base, peft.LoraConfig(r=4, target_modules=["q_proj", "k_proj", "v_proj"]))
    return {"lora gpt2": lora, "lora llama": llama, "dora gpt2": lambda: lora(use_dora=True)}


def timm_models():
    import timm
    names = ["test_vit", "test_vit2", "test_vit3", "test_convnext", "test_convnext2", "test_efficientnet", "test_resnet", "test_byobnet", "test_mambaout",
             "test_nfnet", "test_efficientnet_ln", "test_efficientnet_gn", "test_vit4"]
    names = [n for n in names if timm.is_model(n)]
    return {"timm " + n: lambda n=n: timm.create_model(n, pretrained=False) for n in names}


def torchvision_models():
    import torchvision.models as v
    names = ["resnet18", "shufflenet_v2_x0_5", "mobilenet_v3_small", "squeezenet1_1", "mnasnet0_5", "regnet_y_400mf", "efficientnet_b0", "densenet121"]
    return {"torchvision " + n: lambda n=n: getattr(v, n)(weights=None, num_classes=7) for n in names}


def diffusers_models():
    import diffusers as d
    return {
        "unet2d": lambda: d.UNet2DModel(sample_size=8, block_out_channels=(8, 8), layers_per_block=1, norm_num_groups=4,
                                        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"), attention_head_dim=4),
        "unet2d condition": lambda: d.UNet2DConditionModel(sample_size=8, block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4,
                                                           down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), cross_attention_dim=8,
                                                           up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), attention_head_dim=4),
        "autoencoder kl": lambda: d.AutoencoderKL(block_out_channels=(8, 8), norm_num_groups=4, down_block_types=("DownEncoderBlock2D",) * 2,
                                                  up_block_types=("UpDecoderBlock2D",) * 2),
        "dit": lambda: d.DiTTransformer2DModel(num_attention_heads=2, attention_head_dim=8, num_layers=2, sample_size=8, num_embeds_ada_norm=10),
    }


def known(slow=True):
    """All of them; slow: those of torchvision too, which have millions of parameters."""
    sources = [transformers_models, peft_models, timm_models, diffusers_models] + ([torchvision_models] if slow else [])
    found = list(ARCHITECTURES)
    for source in sources:
        try:
            found += [(name, make, False) for name, make in source().items()]
        except (ImportError, RuntimeError) as why:
            MISSING.append(f"{source.__name__.split('_')[0]} ({why})")
    return found
