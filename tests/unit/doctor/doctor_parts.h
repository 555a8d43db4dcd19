/* tests/unit/doctor/doctor_parts.h - rows of doctor_situations.h, which includes this inside its table: dicts that are there in part, weights of
 * one of several models, hyper-parameters and steps that nothing can be computed with, state of known optimizers that lacks what they read. */
/* clang-format off */
#define ADAM(hypers, more)                                                                                             \
    "{" MODEL("cpu") ",'optimizer':{" STATE("f32@cpu[]", "cpu") ",'param_groups':[{" hypers more "'params':[0,1]}]}}"
#define WHOLE_ADAM ADAM("'amsgrad':False,'betas':(0.9,0.99),'eps':1e-8,'weight_decay':0.0,'lr':0.1,", "")
#define SGD_OF(hypers) "{" MODEL("cpu") ",'optimizer':{'state':{},'param_groups':[{" hypers "'params':[0,1]}]}}"
#define SGD SGD_OF("'momentum':0,'dampening':0,'nesterov':False,'foreach':None,'lr':0.1,'weight_decay':0,")
#define OF_STATE(state, hypers) "{'model':{'a':f32@cpu[2,3]},'optimizer':{'state':{0:{" state "}},'param_groups':[{" hypers "'params':[0]}]}}"
#define NAMED_IDS(more, ids) "{" MODEL("cpu") ",'optimizer':{'state':{'a':{'step':3,'exp_avg':f32@cpu[2,3],'exp_avg_sq':f32@cpu[2,3]},'b':{'step':3," \
    "'exp_avg':f32@cpu[3],'exp_avg_sq':f32@cpu[3]}" more "},'param_groups':[{'lr':0.1,'betas':(0.9,0.99),'eps':1e-8,'weight_decay':0.0,'params':[" ids "]}]}}"
#define OF_SHAPE(id, shape) #id ":{'step':3,'exp_avg':f32@cpu" shape ",'exp_avg_sq':f32@cpu" shape "},"
#define FIVE(weight, ids) "{'model':{'a':f32@cpu[2],'b':f32@cpu[3],'c':f32@cpu[4],'d':f32@cpu[5]," weight "},'optimizer':{'state':{" OF_SHAPE(0, "[2]") \
    OF_SHAPE(1, "[3]") OF_SHAPE(2, "[4]") OF_SHAPE(3, "[5]") OF_SHAPE(4, "[6]") "},'param_groups':[{'lr':0.1,'betas':(0.9,0.99),'eps':1e-8," \
    "'weight_decay':0.0,'params':[" ids "]}]}}"
#define DECOUPLED "'lr':0.1,'betas':(0.9,0.99),'eps':1e-8,'weight_decay':0.0,'foreach':None,'decoupled_weight_decay':False,"
#define GRAD_AVG "'square_avg':f32@cpu[2,3],'grad_avg':f32@cpu[2,3],'step':f32@cpu[]"
/* G and its optimizer, what D is, and another optimizer */
#define G_AND(d, opt_d) "{'G':{'a.w':f32@cpu[5,3],'a.b':f32@cpu[3]}," d "'opt_G':" TRAINS("[5,3]") ",'opt_D':" opt_d "}"
#define OF_NONE "{'state':{0:{'step':3,'exp_avg':f32@cpu[7],'exp_avg_sq':f32@cpu[7]},1:{'step':3,'exp_avg':f32@cpu[8],'exp_avg_sq':f32@cpu[8]}}," GROUPS("") "}"
#define OF_ONE "{'state':{0:{'step':3,'exp_avg':f32@cpu[9],'exp_avg_sq':f32@cpu[9]}},'param_groups':[{'lr':0.1,'betas':(0.9,0.99),'eps':1e-8,'weight_decay':0.0," \
    "'params':[0]}]}"
#define TEXT_ID(id) "{'model':{'a':f32@cpu[2,3]},'optimizer':{'state':{" id ":{'step':3,'exp_avg':f32@cpu[2,3],'exp_avg_sq':f32@cpu[6]}},'param_groups':[{'lr':0.1," \
    "'betas':(0.9,0.99),'eps':1e-8,'weight_decay':0.0,'params':[0]}]}}"
#define UNLIKE(shape) "{'state':{0:{'step':3,'exp_avg':f32@cpu[2,3],'exp_avg_sq':f32@cpu[2,3]},1:{'step':3,'exp_avg':f32@cpu[3],'exp_avg_sq':f32@cpu" shape "}}," GROUPS("") "}"
/* matrices in the first group, vectors in the second: these ids */
#define TWO_GROUPS(first, second) "{'model':{'a.weight':f32@cpu[2,3],'a.bias':f32@cpu[2],'b.weight':f32@cpu[4,2],'b.bias':f32@cpu[4]},'optimizer':{'state':{" \
    "0:{'step':3,'exp_avg':f32@cpu[2,3],'exp_avg_sq':f32@cpu[2,3]},1:{'step':3,'exp_avg':f32@cpu[4,2],'exp_avg_sq':f32@cpu[4,2]}," \
    "2:{'step':3,'exp_avg':f32@cpu[2],'exp_avg_sq':f32@cpu[2]},3:{'step':3,'exp_avg':f32@cpu[4],'exp_avg_sq':f32@cpu[4]}},'param_groups':[{'lr':0.1," \
    "'betas':(0.9,0.99),'eps':1e-8,'weight_decay':0.1,'params':[" first "]},{'lr':0.1,'betas':(0.9,0.99),'eps':1e-8,'weight_decay':0.0,'params':[" second "]}]}}"
#define ADAGRAD(decay, first, second) "{" MODEL("cpu") ",'optimizer':{'state':{0:{'step':" first ",'sum':f32@cpu[2,3]},1:{'step':" second \
    ",'sum':f32@cpu[3]}},'param_groups':[{'lr':0.1,'lr_decay':" decay ",'eps':1e-8,'weight_decay':0,'foreach':None,'initial_accumulator_value':0," \
    "'params':[0,1]}]}}"
#define FILE_AND(more) "{" MODEL("cpu") "," OPTIMIZER("f32@cpu[]", "cpu", "'initial_lr':0.1,") "," more "}"
    /* what is there in part, or cannot be computed with: each ran with torch 2.13 */
    {"bad-hyper", ADAM("'amsgrad':False,'betas':(0.9,),'eps':1e-8,'weight_decay':0.0,'lr':0.1,", ""), WHOLE_ADAM, CKPT_SEVERITY_ERROR, FS, {.loader = T}},
    {"bad-hyper", ADAM("'amsgrad':False,'betas':(0.9,0.99),'eps':None,'weight_decay':0.0,'lr':0.1,", ""), WHOLE_ADAM, CKPT_SEVERITY_ERROR, FS, {.loader = T}},
    {"bad-hyper", ADAM("'amsgrad':False,'betas':(0.9,0.99),'eps':1e-8,'weight_decay':'0','lr':0.1,", ""), WHOLE_ADAM, CKPT_SEVERITY_ERROR, FS, {.loader = T}},
    {"bad-hyper", ADAM("'amsgrad':False,'betas':(0.9,0.99),'eps':1e-8,'weight_decay':0.0,'lr':None,", ""), WHOLE_ADAM, CKPT_SEVERITY_ERROR, FS, {.loader = T}},
    {"bad-hyper",
     ADAM("'amsgrad':False,'betas':(0.9,0.99),'eps':1e-8,'weight_decay':0.0,'lr':0.1,'fused':True,'differentiable':True,", ""),
     ADAM("'amsgrad':False,'betas':(0.9,0.99),'eps':1e-8,'weight_decay':0.0,'lr':0.1,'differentiable':True,", ""),
     CKPT_SEVERITY_ERROR,
     FS,
     {.loader = T}},
    {"bad-hyper",
     ADAM("'amsgrad':False,'betas':(0.9,0.99),'eps':1e-8,'weight_decay':0.0,'lr':0.1,'fused':True,'maximize':None,", ""),
     ADAM("'amsgrad':False,'betas':(0.9,0.99),'eps':1e-8,'weight_decay':0.0,'lr':0.1,'maximize':None,", ""),
     CKPT_SEVERITY_ERROR,
     FS,
     {.loader = T}},
    {"bad-step",
     OF_STATE("'step':3.5,'__bnb_optimizer_quant_state__':{'state1':u8@cpu[2,3]}", "'lr':0.1,'betas':(0.9,0.99),'eps':1e-8,'weight_decay':0,"),
     OF_STATE("'step':3,'__bnb_optimizer_quant_state__':{'state1':u8@cpu[2,3]}", "'lr':0.1,'betas':(0.9,0.99),'eps':1e-8,'weight_decay':0,"),
     CKPT_SEVERITY_ERROR,
     FS,
     {.loader = T}},
    /* as many elements: the fused kernel of the CPU takes them */
    {"moment-shape",
     "{" MODEL("cpu") ",'optimizer':{'state':{0:{'step':f32@cpu[],'exp_avg':f32@cpu[2,3],'exp_avg_sq':f32@cpu[6]},1:{'step':f32@cpu[],"
                      "'exp_avg':f32@cpu[3],'exp_avg_sq':f32@cpu[3]}}," GROUPS("'fused':True,") "}}",
     FILE_OF("f32@cpu[]", "cpu", "'fused':True,"),
     CKPT_SEVERITY_WARNING,
     RD,
     {.loader = T}},
    {"no-such-device",       /* a map takes every tag, one that torch does not know too */
     FILE_OF("f32@cpu[]", "tpu", ""),
     PLAIN,
     CKPT_SEVERITY_ERROR,
     FL,
     {.loader = T}},
    {"bad-step", FILE_OF("None", "cpu", "'amsgrad':False,"), FILE_OF("4", "cpu", "'amsgrad':False,"), CKPT_SEVERITY_ERROR, FL, {.loader = T}},
    {"missing-hyper", SGD_OF("'dampening':0,'nesterov':True,'foreach':None,'lr':0.1,'weight_decay':0,"), SGD, CKPT_SEVERITY_ERROR, FS, {.loader = T}},
    {"missing-hyper",
     OF_STATE("'sum':f32@cpu[2,3],'step':f32@cpu[]", "'lr':0.1,'eps':1e-8,'weight_decay':0,'foreach':None,'initial_accumulator_value':0,"),
     OF_STATE("'sum':f32@cpu[2,3],'step':f32@cpu[]", "'lr':0.1,'lr_decay':0,'eps':1e-8,'weight_decay':0,'foreach':None,"),
     CKPT_SEVERITY_ERROR,
     FS,
     {.loader = T}},
    {"moments-missing",
     OF_STATE("'step':f32@cpu[]", "'lr':0.1,'alpha':0.9,'eps':1e-8,'weight_decay':0,'foreach':None,'centered':False,'momentum':0,"),
     OF_STATE("'square_avg':f32@cpu[2,3],'step':f32@cpu[]", "'lr':0.1,'alpha':0.9,'eps':1e-8,'weight_decay':0,'foreach':None,'centered':False,'momentum':0,"),
     CKPT_SEVERITY_ERROR,
     FS,
     {.loader = T}},
    {"moments-missing",
     OF_STATE("'square_avg':f32@cpu[2,3],'step':f32@cpu[]", "'lr':0.1,'alpha':0.9,'eps':1e-8,'weight_decay':0,'foreach':None,'centered':False,'momentum':0.5,"),
     OF_STATE("'square_avg':f32@cpu[2,3],'step':f32@cpu[]", "'lr':0.1,'alpha':0.9,'eps':1e-8,'weight_decay':0,'foreach':None,'centered':False,'momentum':0,"),
     CKPT_SEVERITY_ERROR,
     FS,
     {.loader = T}},
    {"moments-missing",
     OF_STATE("'__bnb_optimizer_quant_state__':{'state1':u8@cpu[2,3]}", "'lr':0.1,'betas':(0.9,0.99),'eps':1e-8,'weight_decay':0,"),
     OF_STATE("'step':3,'__bnb_optimizer_quant_state__':{'state1':u8@cpu[2,3]}", "'lr':0.1,'betas':(0.9,0.99),'eps':1e-8,'weight_decay':0,"),
     CKPT_SEVERITY_ERROR,
     FS,
     {.loader = T}},
    /* a key of somebody's own beside those of torch's RMSprop: nothing is missing; and what RMSprop would need is */
    {"optimizer-undecided",
     OF_STATE("'mean_square':f32@cpu[2,3],'step':f32@cpu[]", "'lr':0.1,'alpha':0.9,'eps':1e-8,'weight_decay':0,'foreach':None,'centered':False,'momentum':0,"),
     OF_STATE("'square_avg':f32@cpu[2,3],'mine':f32@cpu[2,3],'step':f32@cpu[]", "'lr':0.1,'alpha':0.9,'eps':1e-8,'weight_decay':0,'foreach':None,'centered':False,'momentum':0,"),
     CKPT_SEVERITY_WARNING,
     CKPT_OUTCOME_UNKNOWN,
     {.loader = T}},
    {"optimizer-undecided",
     OF_STATE("'step':f32@cpu[],'exp_avg':f32@cpu[2,3],'exp_avg_sq':f32@cpu[2,3],'mine':1", "'lr':0.1,'betas':(0.9,0.99),'weight_decay':0,'foreach':None,'amsgrad':False,"),
     OF_STATE("'step':f32@cpu[],'exp_avg':f32@cpu[2,3],'exp_avg_sq':f32@cpu[2,3],'mine':1", "'lr':0.1,'betas':(0.9,0.99),'eps':1e-8,'weight_decay':0,'foreach':None,'amsgrad':False,"),
     CKPT_SEVERITY_WARNING,
     CKPT_OUTCOME_UNKNOWN,
     {.loader = T}},
    /* a key of somebody's own beside bitsandbytes' mark */
    {"missing-hyper",
     OF_STATE("'step':3,'mine':1,'__bnb_optimizer_quant_state__':{'state1':u8@cpu[2,3]}", "'lr':0.1,'eps':1e-8,'weight_decay':0,"),
     OF_STATE("'step':3,'mine':1,'__bnb_optimizer_quant_state__':{'state1':u8@cpu[2,3]}", "'lr':0.1,'betas':(0.9,0.99),'eps':1e-8,'weight_decay':0,"),
     CKPT_SEVERITY_ERROR,
     FS,
     {.loader = T}},
    /* a weight of D is gone, or all of D */
    {"group-mismatch", G_AND("'D':{'a.b':f32@cpu[3]},", TRAINS("[2,3]")), G_AND("'D':{'a.w':f32@cpu[2,3],'a.b':f32@cpu[3]},", TRAINS("[2,3]")), CKPT_SEVERITY_ERROR, FL, {.loader = T}},
    {"weights-missing", G_AND("", OF_NONE), G_AND("'D':{'a.w':f32@cpu[7],'a.b':f32@cpu[8]},", OF_NONE), CKPT_SEVERITY_WARNING, RD, {.loader = T}},
    {"weights-missing", "{'D':{'a.w':f32@cpu[9]},'opt_G':" OF_NONE ",'opt_D':" OF_ONE "}", "{'G':{'a.w':f32@cpu[7],'a.b':f32@cpu[8]},'D':{'a.w':f32@cpu[9]},'opt_G':" OF_NONE ",'opt_D':" OF_ONE "}",
     CKPT_SEVERITY_WARNING, RD, {.loader = T}},
    /* state of the text '0', which is no parameter's where the groups have numbers */
    {"state-without-parameter", TEXT_ID("'0'"), TEXT_ID("0"), CKPT_SEVERITY_NOTE, RD, {.loader = T}},
    /* the last of two keeps its own state, by the division of the groups; or not, and then which parameter has which is not known */
    {"moment-shape", G_AND("'D':{'a.w':f32@cpu[2,3],'a.b':f32@cpu[3]},", UNLIKE("[5,3]")), G_AND("'D':{'a.w':f32@cpu[2,3],'a.b':f32@cpu[3]},", UNLIKE("[3]")),
     CKPT_SEVERITY_ERROR, FS, {.loader = T}},
    {"id-twice", TWO_GROUPS("0,1", "3,3"), TWO_GROUPS("0,1", "2,3"), CKPT_SEVERITY_WARNING, RD, {.loader = T}},
    {"model-undecided", TWO_GROUPS("0,1", "2,2"), TWO_GROUPS("0,1", "3,3"), CKPT_SEVERITY_WARNING, CKPT_OUTCOME_UNKNOWN, {.loader = T}},
    /* of bitsandbytes' Lion nothing is left but its count of steps */
    {"moments-missing",
     OF_STATE("'step':3", "'lr':0.1,'betas':(0.9,0.99),'eps':1e-8,'weight_decay':0,"),
     OF_STATE("'step':3,'exp_avg':f32@cpu[2,3]", "'lr':0.1,'betas':(0.9,0.99),'eps':1e-8,'weight_decay':0,"),
     CKPT_SEVERITY_ERROR,
     FS,
     {.loader = T}},
    /* what load_state_dict sets to False; without momentum it is nothing */
    {"missing-hyper",
     OF_STATE("'momentum_buffer':f32@cpu[2,3]", "'lr':0.1,'momentum':0.9,'dampening':0,'weight_decay':0,'foreach':None,"),
     OF_STATE("'momentum_buffer':f32@cpu[2,3]", "'lr':0.1,'momentum':0.9,'dampening':0,'weight_decay':0,'foreach':None,'nesterov':True,"),
     CKPT_SEVERITY_WARNING,
     RD,
     {.loader = T}},
    {"missing-hyper",
     OF_STATE("'momentum_buffer':f32@cpu[2,3]", "'lr':0.1,'momentum':0.9,'dampening':0,'weight_decay':0,'foreach':None,"),
     SGD_OF("'momentum':0,'dampening':0,'foreach':None,'lr':0.1,'weight_decay':0,"),
     CKPT_SEVERITY_WARNING,
     RD,
     {.loader = T}},
    {"missing-hyper",
     OF_STATE("'step':f32@cpu[],'exp_avg':f32@cpu[2,3],'exp_avg_sq':f32@cpu[2,3],'max_exp_avg_sq':f32@cpu[2,3]", DECOUPLED),
     OF_STATE("'step':f32@cpu[],'exp_avg':f32@cpu[2,3],'exp_avg_sq':f32@cpu[2,3]", DECOUPLED),
     CKPT_SEVERITY_WARNING,
     RD,
     {.loader = T}},
    {"missing-hyper",
     OF_STATE(GRAD_AVG, "'lr':0.1,'alpha':0.9,'eps':1e-8,'weight_decay':0,'foreach':None,'momentum':0,"),
     OF_STATE(GRAD_AVG, "'lr':0.1,'alpha':0.9,'eps':1e-8,'weight_decay':0,'foreach':None,'momentum':0,'centered':True,"),
     CKPT_SEVERITY_WARNING,
     RD,
     {.loader = T}},
    {"missing-hyper",
     OF_STATE("'square_avg':f32@cpu[2,3],'step':f32@cpu[],'momentum_buffer':f32@cpu[2,3]", "'lr':0.1,'alpha':0.9,'eps':1e-8,'weight_decay':0,'foreach':None,'centered':False,"),
     OF_STATE("'square_avg':f32@cpu[2,3],'step':f32@cpu[]", "'lr':0.1,'alpha':0.9,'eps':1e-8,'weight_decay':0,'foreach':None,'centered':False,"),
     CKPT_SEVERITY_WARNING,
     RD,
     {.loader = T}},
    /* steps of which Adagrad without lr_decay computes nothing, and with it does */
    {"steps-differ", ADAGRAD("0", "-1", "4"), ADAGRAD("0", "4", "4"), CKPT_SEVERITY_WARNING, R, {.loader = T}},
    {"step-value", ADAGRAD("0.1", "-1", "4"), ADAGRAD("0", "-1", "4"), CKPT_SEVERITY_WARNING, RD, {.loader = T}},
    /* ids that are names: with the one that is in no group there are as many as parameters; or one more */
    {"group-mismatch", NAMED_IDS("", "'a'"), NAMED_IDS(",'c':{'step':3,'exp_avg':f32@cpu[3],'exp_avg_sq':f32@cpu[3]}", "'a','b'"), CKPT_SEVERITY_ERROR, FL, {.loader = T}},
    /* a weight is gone, and an id stands twice */
    {"group-mismatch", FIVE("", "0,1,2,3,4,4"), FIVE("'e':f32@cpu[6],", "0,1,2,3,4"), CKPT_SEVERITY_ERROR, FL, {.loader = T}},
    {"optimizer-incomplete", "{" MODEL("cpu") ",'optimizer':{" STATE("f32@cpu[]", "cpu") "}}", PLAIN, CKPT_SEVERITY_ERROR, FL, {.loader = T}},
    {"optimizer-incomplete", "{" MODEL("cpu") ",'optimizer':{" GROUPS("") "}}", PLAIN, CKPT_SEVERITY_ERROR, FL, {.loader = T}},
    {"optimizer-incomplete",
     "{" MODEL("cpu") ",'optimizer':{" STATE("f32@cpu[]", "cpu") ",'param_groups':[{'lr':0.1}]}}",
     PLAIN,
     CKPT_SEVERITY_ERROR,
     FL,
     {.loader = T}},
    {"rng-refused", "{" MODEL("cpu") ",'rng':{'torch':f32@cpu[8]}}", "{" MODEL("cpu") ",'rng':{'torch':u8@cpu[5056]}}", CKPT_SEVERITY_ERROR, FL, {.loader = T}},
    {"rng-refused", "{" MODEL("cpu") ",'rng':{'torch':u8@cpu[4956]}}", "{" MODEL("cpu") ",'rng':{'cuda':u8@cpu[16]}}", CKPT_SEVERITY_ERROR, FL, {.loader = T}},
    {"scaler-incomplete",
     "{" MODEL("cpu") ",'scaler':{'growth_factor':2.0,'backoff_factor':0.5,'growth_interval':20,'_growth_tracker':1}}",
     "{" MODEL("cpu") ",'scaler':" SCALER "}",
     CKPT_SEVERITY_ERROR,
     FL,
     {.loader = T, .amp = true}},
    {"scheduler-incomplete", FILE_AND("'scheduler':{'base_lrs':[0.1],'T_max':9,'_step_count':4,'_last_lr':[0.1]}"), FILE_AND(SCHEDULER), CKPT_SEVERITY_WARNING, RD, {.loader = T}},
    {"scheduler-incomplete",
     FILE_AND("'scheduler':{'base_lrs':[0.1,0.1],'last_epoch':3,'_step_count':4,'_last_lr':[0.1],'lr_lambdas':[None,None]}"),
     FILE_AND("'scheduler':{'base_lrs':[0.1],'last_epoch':3,'_step_count':4,'_last_lr':[0.1],'lr_lambdas':[None]}"),
     CKPT_SEVERITY_ERROR,
     FS,
     {.loader = T}},
    {"scheduler-incomplete",
     FILE_AND("'scheduler':{'base_lrs':[0.1],'last_epoch':3,'_step_count':4,'_last_lr':[0.1],'_get_lr_called_within_step':False}"),
     FILE_AND("'scheduler':{'base_lrs':[0.1],'last_epoch':3,'_step_count':4,'_last_lr':[0.1],'_get_lr_called_within_step':False,'T_max':9}"),
     CKPT_SEVERITY_WARNING,
     CKPT_OUTCOME_UNKNOWN,
     {.loader = T}},
    {"no-data",              /* of two models: which is meant is not known, and none has data */
     "{'G':{'a':meta[2,3]},'D':{'b':meta[3]},'opt_G':{'state':{},'param_groups':[{'lr':0.1,'params':[0]}]},'opt_D':{'state':{},'param_groups':[{'lr':0.1,'params':[0]}]}}",
     "{'G':{'a':f32@cpu[2,3]},'D':{'b':f32@cpu[3]},'opt_G':{'state':{},'param_groups':[{'lr':0.1,'params':[0]}]},'opt_D':{'state':{},'param_groups':[{'lr':0.1,'params':[0]}]}}",
     CKPT_SEVERITY_ERROR,
     FL,
     {.loader = T}},
    /* clang-format on */
